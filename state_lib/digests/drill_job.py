"""``python -m state_lib.digests.drill_job APP ID``: a drill whose report is the record ID."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from state_lib.changelog.claims import topology_of
from state_lib.config import Settings
from state_lib.digests.drill import Drill, Tell, drill
from state_lib.kafka import Kafka
from state_lib.logs import configure_logging
from state_lib.reports.folder import Reports
from state_lib.reports.job import run_job

_NICE = 10


def drill_app(
    settings: Settings, app: str, folder: Path | None = None, tell: Tell = lambda _: None
) -> Drill:
    """As `drill`, by the settings; ``folder``: default ``drills`` in the home."""
    kafka = Kafka.of(settings)
    return drill(
        kafka,
        topology_of(kafka, app),
        settings.host_addresses,
        settings.read_token(),
        snapshots_url=settings.snapshots_url,
        folder=folder or settings.home / "drills",
        tell=tell,
    )


def main(arguments: list[str]) -> int:
    """Run it; returns the exit code."""
    app, job = arguments[:2]
    folder = Path(arguments[2]) if arguments[2:] else None
    settings = Settings.load()
    configure_logging(settings.log_level)
    with contextlib.suppress(OSError):
        os.nice(_NICE)  # hosts and drivers of this machine come first

    def work(tell: Tell) -> Mapping[str, Any]:
        return drill_app(settings, app, folder, tell).to_json()

    return run_job(Reports.of(settings, app, "drill"), job, work)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
