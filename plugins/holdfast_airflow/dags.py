"""DAGs of an application, ready made: one line in a DAG file each."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from airflow.sdk import DAG, Param

from holdfast_airflow.operators.load import LoadOperator
from holdfast_airflow.operators.stream import SuperviseStreamOperator
from holdfast_airflow.operators.verify import VerifyChangelogsOperator

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
LOAD_DOC = """
### Load `{app}`

Publishes the data of `{app}` to its source topic, each record once, however often it runs: a
loader that was killed goes on where it stopped. `limit` loads only the first records, `rate` is
the most per second.
"""

VERIFY_DOC = """
### Verify `{app}`

Looks at everything that the state of `{app}` depends on, and changes nothing: topics and their
settings, whether changelogs are really compacted, tasks and their hosts, disks, snapshots. It fails
if a verdict does; the task's log has what was seen, the next step, and the page of the runbook.
It is skipped while the application has not run yet, or not since it was reset.
`holdfast check {app}` does the same.
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


def load_dag(name: str, *, tags: Sequence[str] = (), doc_md: str = "", **operator: Any) -> DAG:
    """The DAG ``<name>_load``: one task, `load`, with the parameters ``limit`` and ``rate``.

    Args:
        name: Whose data: ``<name>_load.py`` in ``HOLDFAST_JOBS_DIR`` loads it.
        tags: Besides ``holdfast`` and ``load``.
        doc_md: What is loaded; comes first in the DAG's documentation.
        operator: More arguments of `LoadOperator`.
    """
    with DAG(
        f"{name}_load",
        description=f"Loads the data of {name}",
        doc_md=doc_md + LOAD_DOC.format(app=name),
        schedule=None,
        catchup=False,
        max_active_runs=1,
        tags=["holdfast", "load", *tags],
        params={
            "limit": Param(
                None, type=["null", "integer"], minimum=1, description="Only the first records."
            ),
            "rate": Param(
                None,
                type=["null", "number"],
                exclusiveMinimum=0,
                description="Most records per second.",
            ),
        },
    ) as dag:
        given: dict[str, Any] = {
            "retries": 3,
            "retry_delay": timedelta(seconds=10),
            "limit": "{{ params.limit }}",
            "rate": "{{ params.rate }}",
            **operator,
        }
        LoadOperator(task_id="load", name=name, **given)
    return dag


def verify_dag(
    app: str,
    *,
    schedule: timedelta | str | None = timedelta(minutes=15),
    tags: Sequence[str] = (),
    **operator: Any,
) -> DAG:
    """The DAG ``<app>_verify``: one task, `verify`, every quarter of an hour.

    Args:
        app: The application's id.
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
    return dag
