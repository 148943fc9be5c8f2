"""The DAG that keeps a stream running."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from airflow.sdk import DAG, Param

from holdfast_airflow.operators.stream import SuperviseStreamOperator

STREAM_DOC = """
### Stream `{app}`

Keeps one Spark driver of the application `{app}` running: adopts the one that lives or starts it,
starts it again after a crash, tells its progress in the task's log.

- **Start**: trigger this DAG. Triggered again while it runs, the new run waits.
- **Stop**: `holdfast stop {app}` or a `StopStreamOperator`; or mark the task as success or failed.
  The driver ends at a batch's edge, and nothing is lost.
- **Restart**: clear the task.
- **Where it runs**: the Spark connection of the parameter `conn_id`; change its master in
  *Admin, Connections*.
- **Look**: the task's log for progress; its buttons for the driver's log and Spark's page.
"""


def stream_dag(
    app: str,
    *,
    application: str | None = None,
    conn_id: str = "spark_default",
    tags: Sequence[str] = (),
    doc_md: str = "",
    **operator: Any,
) -> DAG:
    """The DAG ``<app>_stream``: one task, `supervise`, for as long as the stream runs.

    Args:
        app: The application's id.
        application: Its job file; default ``<app>.py`` in ``HOLDFAST_JOBS_DIR``.
        conn_id: The Spark connection, unless the run's parameter names another one.
        tags: Besides ``holdfast`` and ``stream``.
        doc_md: What the application does; comes first in the DAG's documentation.
        operator: More arguments of `SuperviseStreamOperator`.
    """
    with DAG(
        f"{app}_stream",
        description=f"Runs the stream {app} until it is stopped",
        doc_md=doc_md + STREAM_DOC.format(app=app),
        schedule=None,
        catchup=False,
        max_active_runs=1,
        tags=["holdfast", "stream", *tags],
        params={
            "conn_id": Param(
                conn_id, type="string", minLength=1, description="Spark connection: where it runs."
            ),
            "max_restarts": Param(
                8,
                type="integer",
                minimum=0,
                description="Failures in a row, without a commit between, until it is given up.",
            ),
        },
    ) as dag:
        given: dict[str, Any] = {
            # What passes by itself: Kafka or Airflow's database away at the start.
            "retries": 10,
            "retry_delay": timedelta(seconds=10),
            "max_restarts": "{{ params.max_restarts }}",
            "conn_id": "{{ params.conn_id }}",
            **operator,
        }
        SuperviseStreamOperator(task_id="supervise", app=app, application=application, **given)
    return dag
