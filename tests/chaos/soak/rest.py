"""Nothing at work but the stream and what watches it, for as long as something is timed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from state_lib.client.airflow import Airflow
from tests.chaos.soak.names import PERIODIC
from tests.chaos.soak.scene import Scene

REST_S = 240.0
"""For what is under way: an audit is a Spark job of a minute."""
AT_WORK = {"queued", "running", "deferred"}
"""Tasks of a paused DAG come out of these states by themselves, and into none of them."""


@contextmanager
def at_rest(scene: Scene, airflow: Airflow) -> Iterator[None]:
    """DAGs that run now and then are paused, and what they did is done."""
    for dag in PERIODIC:
        pause(airflow, dag)
    try:
        scene.until("at rest", lambda: not at_work(airflow), REST_S)
        yield
    finally:
        for dag in PERIODIC:
            airflow.unpause(dag)


def pause(airflow: Airflow, dag: str) -> None:
    """No task of it begins any more."""
    airflow._call("PATCH", f"/dags/{dag}", json={"is_paused": True})


def at_work(airflow: Airflow) -> list[str]:
    """Tasks of these DAGs that do something."""
    return [
        f"{dag}.{task.id}"
        for dag in PERIODIC
        for run in airflow.active_runs(dag)
        for task in airflow.tasks(run)
        if task.state in AT_WORK
    ]
