"""What stands beside a job for its audit: ``<jobs>/<name>_audit.py``."""

from __future__ import annotations

from pathlib import Path

from state_lib.audit.run import Recompute, Totals
from state_lib.companions import companion


def recompute_of(
    name: str, jobs: Path, *, skip_csv: bool = False
) -> tuple[Recompute, Totals | None]:
    """The recompute of an application, and its totals if it has any.

    Args:
        name: the application.
        jobs: directory of the jobs.
        skip_csv: leave out the totals.

    Raises:
        NotFound: there is no such file.
    """
    module = companion(name, "audit", jobs, "recompute")
    totals = None
    if hasattr(module, "totals_from_csv") and not skip_csv:
        totals = Totals(module.totals_from_csv, module.totals_from_stores)
    return module.recompute, totals
