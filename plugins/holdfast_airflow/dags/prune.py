"""The DAG that removes an application's old snapshots."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from airflow.sdk import DAG

from holdfast_airflow.operators.prune import PruneSnapshotsOperator

PRUNE_DOC = """
### Prune snapshots of `{app}`

Keeps the newest {keep} snapshots of each task, and the newest of each of the last {daily} days that
have one; removes the others, and files that no snapshot of the last day needs. Savepoints stay, and
what a task is on its way back to. It is safe beside snapshots and restores.
It is skipped while the application has neither run nor snapshots.
`holdfast snapshot prune {app} --keep {keep} --daily {daily}` does the same.
"""


def prune_dag(
    app: str,
    *,
    schedule: timedelta | str | None = timedelta(days=1),
    keep: int = 24,
    daily: int = 14,
    tags: Sequence[str] = (),
    **operator: Any,
) -> DAG:
    """The DAG ``<app>_prune``: one task, `prune`, every day.

    Args:
        app: The application's id.
        schedule: When it runs; None: only when it is triggered.
        keep: Newest snapshots kept, per task.
        daily: Days whose newest snapshot is kept as well.
        tags: Besides ``holdfast`` and ``snapshots``.
        operator: More arguments of `PruneSnapshotsOperator`.
    """
    with DAG(
        f"{app}_prune",
        description=f"Removes old snapshots of {app}",
        doc_md=PRUNE_DOC.format(app=app, keep=keep, daily=daily),
        schedule=schedule,
        catchup=False,
        max_active_runs=1,
        dagrun_timeout=timedelta(hours=6),  # of storage that hangs, too: the next run looks again
        tags=["holdfast", "snapshots", *tags],
    ) as dag:
        given: dict[str, Any] = {
            "retries": 3,
            "retry_delay": timedelta(seconds=30),
            "skip_unknown": True,
            **operator,
        }
        PruneSnapshotsOperator(task_id="prune", app=app, keep=keep, daily=daily, **given)
    return dag
