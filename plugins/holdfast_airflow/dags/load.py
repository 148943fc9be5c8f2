"""The DAG that loads the data of an application."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from airflow.sdk import DAG, Param

from holdfast_airflow.operators.load import LoadOperator

LOAD_DOC = """
### Load `{app}`

Publishes the data of `{app}` to its source topic, each record once, however often it runs: a
loader that was killed goes on where it stopped. `limit` loads only the first records, `rate` is
the most per second.
"""


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
