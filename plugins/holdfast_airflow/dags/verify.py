"""The DAG that verifies an application's topics, hosts, disks and snapshots."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from airflow.sdk import DAG, BaseNotifier

from holdfast_airflow.operators.tell import told_of
from holdfast_airflow.operators.verify import VerifyChangelogsOperator

VERIFY_DOC = """
### Verify `{app}`

Looks at everything that the state of `{app}` depends on, and changes nothing: topics and their
settings, whether changelogs are really compacted, tasks and their hosts, disks, snapshots. It fails
if a verdict does; the task's log has what was seen, the next step, and the page of the runbook.
It is skipped while the application has not run yet, or not since it was reset.
`holdfast check {app}` does the same.
"""


def verify_dag(
    app: str,
    *,
    notifiers: Sequence[BaseNotifier] = (),
    schedule: timedelta | str | None = timedelta(minutes=15),
    tags: Sequence[str] = (),
    **operator: Any,
) -> DAG:
    """The DAG ``<app>_verify``: one task, `verify`, every quarter of an hour.

    Args:
        app: The application's id.
        notifiers: Whom to tell once that it fails, and once that it succeeds again: any notifiers
            of Airflow; see `IncidentNotifier`. With some the DAG ends with the task `tell`.
        schedule: When it runs; None: only when it is triggered.
        tags: Besides ``holdfast`` and ``verify``.
        operator: More arguments of `VerifyChangelogsOperator`.
    """
    with DAG(
        f"{app}_verify",
        description=f"Verifies that the state of {app} is safe",
        doc_md=VERIFY_DOC.format(app=app),
        schedule=schedule,
        catchup=False,
        max_active_runs=1,
        dagrun_timeout=timedelta(hours=2),  # of storage that hangs, too: the next run looks again
        tags=["holdfast", "verify", *tags],
    ) as dag:
        # Kafka may be away for a while. What a verdict fails is not tried again.
        given: dict[str, Any] = {
            "retries": 3,
            "retry_delay": timedelta(seconds=30),
            "skip_unknown": True,
            **operator,
        }
        VerifyChangelogsOperator(task_id="verify", app=app, **given)
        told_of(dag, app, "verify-failed", notifiers, {"verify": "success"})
    return dag
