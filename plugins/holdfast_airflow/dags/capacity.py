"""The DAG that reports an application's capacity."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from airflow.sdk import DAG, BaseNotifier

from holdfast_airflow.dags.nightly import NIGHTLY, cron_of
from holdfast_airflow.operators.capacity import CapacityReportOperator
from holdfast_airflow.operators.tell import told_of

CAPACITY_DOC = """
### Capacity of `{app}`

What the state of `{app}` takes and how it grows: records, bytes on disk, in changelogs and in
snapshots, days until disks are full, seconds that restores would take. A page with charts is kept
(the task's button opens the newest one), and the figures as JSON. It never fails for what it finds:
`{app}_verify` does. It is skipped while the application has not run yet.
`holdfast capacity {app}` does the same.
"""


def capacity_dag(
    app: str,
    *,
    notifiers: Sequence[BaseNotifier] = (),
    schedule: timedelta | str | None = NIGHTLY,
    tags: Sequence[str] = (),
    **operator: Any,
) -> DAG:
    """The DAG ``<app>_capacity``: one task, `report`, every day.

    Args:
        app: The application's id.
        notifiers: Whom to tell once that it fails, and once that it succeeds again: any notifiers
            of Airflow; see `IncidentNotifier`. With some the DAG ends with the task `tell`.
        schedule: When it runs, default `NIGHTLY`; None: only when it is triggered.
        tags: Besides ``holdfast`` and ``capacity``.
        operator: More arguments of `CapacityReportOperator`.
    """
    with DAG(
        f"{app}_capacity",
        description=f"Reports what the state of {app} takes, and how it grows",
        doc_md=CAPACITY_DOC.format(app=app),
        schedule=cron_of(f"{app}_capacity") if schedule == NIGHTLY else schedule,
        catchup=False,
        max_active_runs=1,
        dagrun_timeout=timedelta(hours=2),  # of storage that hangs, too: the next run looks again
        tags=["holdfast", "capacity", *tags],
    ) as dag:
        given: dict[str, Any] = {
            "retries": 3,
            "retry_delay": timedelta(seconds=30),
            "skip_unknown": True,
            **operator,
        }
        CapacityReportOperator(task_id="report", app=app, **given)
        told_of(dag, app, "capacity-failed", notifiers, {"report": "success"})
    return dag
