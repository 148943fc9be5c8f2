"""The DAG that audits an application."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from airflow.sdk import DAG, BaseNotifier

from holdfast_airflow.dags.nightly import NIGHTLY, cron_of
from holdfast_airflow.operators.audit import AuditOperator
from holdfast_airflow.operators.tell import told_of

AUDIT_DOC = """
### Audit `{app}`

Recomputes everything that `{app}` holds from its sources, as a Spark batch, and compares every
entry: stores, outputs, dead letters, counts of dropped records. The stream may go on. It fails if
anything differs; the task's log has the first differences and the next step. It is skipped while
the application has not run yet, or not since it was reset.

- **What it recomputes by**: `{app}_audit.py` in the jobs directory.
- **Where it runs**: the Spark connection `{conn}`.
- `holdfast audit {app}` does the same.
"""


def audit_dag(
    app: str,
    *,
    notifiers: Sequence[BaseNotifier] = (),
    schedule: timedelta | str | None = NIGHTLY,
    conn_id: str = "spark_default",
    tags: Sequence[str] = (),
    **operator: Any,
) -> DAG:
    """The DAG ``<app>_audit``: one task, `audit`, every day.

    Args:
        app: The application's id.
        notifiers: Whom to tell once that it fails, and once that it succeeds again: any notifiers
            of Airflow; see `IncidentNotifier`. With some the DAG ends with the task `tell`.
        schedule: When it runs, default `NIGHTLY`; None: only when it is triggered.
        conn_id: The Spark connection.
        tags: Besides ``holdfast`` and ``audit``.
        operator: More arguments of `AuditOperator`.
    """
    with DAG(
        f"{app}_audit",
        description=f"Compares all that {app} holds with a recompute",
        doc_md=AUDIT_DOC.format(app=app, conn=conn_id),
        schedule=cron_of(f"{app}_audit") if schedule == NIGHTLY else schedule,
        catchup=False,
        max_active_runs=1,
        tags=["holdfast", "audit", *tags],
    ) as dag:
        given: dict[str, Any] = {
            "retries": 3,
            "retry_delay": timedelta(minutes=2),
            "skip_unknown": True,
            "spark_conn_id": conn_id,
            **operator,
        }
        AuditOperator(task_id="audit", app=app, **given)
        told_of(dag, app, "audit-failed", notifiers, {"audit": "success"})
    return dag
