"""An audit as a Spark job: ``spark-submit job.py APP ID [WAIT_S]``. Its report is the record ID."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

from state_lib.audit import audit
from state_lib.audit.beside import recompute_of
from state_lib.config import Settings
from state_lib.logs import configure_logging
from state_lib.reports.folder import Reports
from state_lib.reports.job import Tell, run_job


def main(arguments: list[str]) -> int:
    """Run it; returns the exit code."""
    app, job, wait_s = [*arguments, "60"][:3]
    settings = Settings.load()
    configure_logging(settings.log_level)

    def work(tell: Tell) -> Mapping[str, Any]:
        recompute, totals = recompute_of(app, settings.jobs_dir)
        waited = float(wait_s)
        return audit(app, settings, recompute, totals=totals, wait_s=waited, tell=tell).to_json()

    return run_job(Reports.of(settings, app, "audit"), job, work)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
