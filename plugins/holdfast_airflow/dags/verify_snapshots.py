"""The DAG that verifies an application's snapshots."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from airflow.sdk import DAG, Param

from holdfast_airflow.operators.verify_snapshots import VerifySnapshotsOperator

VERIFY_SNAPSHOTS_DOC = """
### Verify snapshots of `{app}`

Looks whether the snapshots of `{app}` are whole, or the one `snapshot` that is named: their files
and sizes, with `deep` every byte. A file whose content was changed is set aside then, and the next
snapshot uploads it anew. It fails if one is not whole; it is skipped while there is none.
`{app}_verify` looks at sizes every quarter of an hour, `{app}_drill` restores the newest ones.
`holdfast snapshot verify {app}` does the same.
"""


def verify_snapshots_dag(
    app: str,
    *,
    schedule: timedelta | str | None = None,
    tags: Sequence[str] = (),
    **operator: Any,
) -> DAG:
    """The DAG ``<app>_verify_snapshots``: one task, `verify`, with ``snapshot`` and ``deep``.

    Args:
        app: The application's id.
        schedule: When it runs; None: only when it is triggered.
        tags: Besides ``holdfast`` and ``snapshots``.
        operator: More arguments of `VerifySnapshotsOperator`.
    """
    with DAG(
        f"{app}_verify_snapshots",
        description=f"Verifies that the snapshots of {app} are whole",
        doc_md=VERIFY_SNAPSHOTS_DOC.format(app=app),
        schedule=schedule,
        catchup=False,
        max_active_runs=1,
        tags=["holdfast", "snapshots", *tags],
        params={
            "snapshot": Param(
                None,
                type=["null", "string"],
                pattern=r"^\d{8}T\d{9}Z-[0-9a-f]{8}$",
                description="Id of a snapshot or a savepoint; none: all.",
            ),
            "deep": Param(
                default=False, type="boolean", description="Read every byte and compare SHA-256."
            ),
        },
    ) as dag:
        given: dict[str, Any] = {
            "retries": 3,
            "retry_delay": timedelta(minutes=1),
            "skip_unknown": True,
            "snapshot": "{{ params.snapshot or '' }}",
            "deep": "{{ params.deep }}",
            **operator,
        }
        VerifySnapshotsOperator(task_id="verify", app=app, **given)
    return dag
