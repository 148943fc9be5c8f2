"""The DAG that takes an application's snapshots."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from airflow.sdk import DAG

from holdfast_airflow.operators.snapshots import SnapshotStoresOperator

SNAPSHOTS_DOC = """
### Snapshots of `{app}`

Has every host take a snapshot of each of its tasks, into `HOLDFAST_SNAPSHOTS_URL`, and waits until
all are verified; the stream goes on meanwhile. A restore fetches the newest one and replays what
came after it. A run that is interrupted goes on where it was: nothing is taken twice. Clear the
task to have new ones taken.
It is skipped while the application has not run yet, or not since it was reset.
`holdfast snapshot create {app}` does the same, `holdfast snapshot list {app}` shows what there is.
"""


def snapshots_dag(
    app: str,
    *,
    schedule: timedelta | str | None = timedelta(hours=1),
    tags: Sequence[str] = (),
    **operator: Any,
) -> DAG:
    """The DAG ``<app>_snapshots``: one task, `snapshot`, every hour.

    Args:
        app: The application's id.
        schedule: When it runs; None: only when it is triggered.
        tags: Besides ``holdfast`` and ``snapshots``.
        operator: More arguments of `SnapshotStoresOperator`.
    """
    with DAG(
        f"{app}_snapshots",
        description=f"Takes snapshots of the stores of {app}",
        doc_md=SNAPSHOTS_DOC.format(app=app),
        schedule=schedule,
        catchup=False,
        max_active_runs=1,
        tags=["holdfast", "snapshots", *tags],
    ) as dag:
        # A host may be restarting, storage may be away: a retry asks for what is missing.
        given: dict[str, Any] = {
            "retries": 3,
            "retry_delay": timedelta(seconds=30),
            "skip_unknown": True,
            **operator,
        }
        SnapshotStoresOperator(task_id="snapshot", app=app, **given)
    return dag
