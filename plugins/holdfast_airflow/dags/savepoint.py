"""The DAG that takes an application at one commit."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from airflow.sdk import DAG

from holdfast_airflow.operators.savepoint import SavepointOperator

SAVEPOINT_DOC = """
### Savepoint of `{app}`

Takes every task of `{app}` at one and the same commit: before a deployment, for a copy, to go back
to. The stream may run or not. Savepoints are kept until they are pruned. Its id is in the task's
log and XCom: the parameter `to` of `{app}_restore_by_hand` takes it.
`holdfast snapshot savepoint {app}` does the same.
"""


def savepoint_dag(
    app: str,
    *,
    schedule: timedelta | str | None = None,
    tags: Sequence[str] = (),
    **operator: Any,
) -> DAG:
    """The DAG ``<app>_savepoint``: one task, `savepoint`.

    Args:
        app: The application's id.
        schedule: When it runs; None: only when it is triggered.
        tags: Besides ``holdfast`` and ``snapshots``.
        operator: More arguments of `SavepointOperator`.
    """
    with DAG(
        f"{app}_savepoint",
        description=f"Takes all tasks of {app} at one commit",
        doc_md=SAVEPOINT_DOC.format(app=app),
        schedule=schedule,
        catchup=False,
        max_active_runs=1,
        tags=["holdfast", "snapshots", *tags],
    ) as dag:
        given: dict[str, Any] = {"retries": 3, "retry_delay": timedelta(seconds=30), **operator}
        SavepointOperator(task_id="savepoint", app=app, **given)
    return dag
