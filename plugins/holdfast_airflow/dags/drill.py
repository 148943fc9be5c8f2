"""The DAG that drills an application's restore."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from airflow.sdk import DAG, BaseNotifier

from holdfast_airflow.dags.nightly import NIGHTLY, cron_of
from holdfast_airflow.operators.drill import RestoreDrillOperator
from holdfast_airflow.operators.tell import told_of

DRILL_DOC = """
### Restore drill of `{app}`

Restores the newest snapshot of each task of `{app}` and the tail of its changelogs aside, on the
worker, and compares the digest of every store with the live one at the same positions: a backup
that was never restored is none. It touches nothing that is live, and reports seconds, bytes and
records per second. It fails if a store differs, seen twice, or if a snapshot cannot be restored.
It is skipped while there is no snapshot, or the application has not run yet.
`holdfast drill {app}` does the same.
"""


def drill_dag(
    app: str,
    *,
    notifiers: Sequence[BaseNotifier] = (),
    schedule: timedelta | str | None = NIGHTLY,
    tags: Sequence[str] = (),
    **operator: Any,
) -> DAG:
    """The DAG ``<app>_drill``: one task, `drill`, every day.

    Args:
        app: The application's id.
        notifiers: Whom to tell once that it fails, and once that it succeeds again: any notifiers
            of Airflow; see `IncidentNotifier`. With some the DAG ends with the task `tell`.
        schedule: When it runs, default `NIGHTLY`; None: only when it is triggered.
        tags: Besides ``holdfast`` and ``drill``.
        operator: More arguments of `RestoreDrillOperator`.
    """
    with DAG(
        f"{app}_drill",
        description=f"Restores the newest snapshots of {app} aside, and compares",
        doc_md=DRILL_DOC.format(app=app),
        schedule=cron_of(f"{app}_drill") if schedule == NIGHTLY else schedule,
        catchup=False,
        max_active_runs=1,
        tags=["holdfast", "drill", *tags],
    ) as dag:
        given: dict[str, Any] = {
            "retries": 3,
            "retry_delay": timedelta(minutes=2),
            "skip_unknown": True,
            **operator,
        }
        RestoreDrillOperator(task_id="drill", app=app, **given)
        told_of(dag, app, "drill-failed", notifiers, {"drill": "success"})
    return dag
