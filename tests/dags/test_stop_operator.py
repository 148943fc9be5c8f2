"""A task that stops a stream: whoever supervises it, and whether or not it runs."""

from __future__ import annotations

import os
import signal
from datetime import timedelta
from typing import Any

import pytest
from airflow.sdk import DAG, DagRunState

from holdfast_airflow.operators.stream import StopStreamOperator
from tests.dags.conftest import Scripts

APP = "halted"


def stopping(app: str, **operator: Any) -> Any:
    """One run of a DAG that stops the application; its state."""
    with DAG(f"stop_{app}", schedule=None) as dag:
        StopStreamOperator(task_id="stop", app=app, **operator)
    return dag.test().state


def test_it_waits_until_the_driver_has_stopped(
    scripts: Scripts, capsys: pytest.CaptureFixture[str]
) -> None:
    scripts.says(APP, "run")
    driver = scripts.launch(APP)
    scripts.commits(APP)
    assert stopping(APP, why="the day is over") == DagRunState.SUCCESS
    assert f"no driver of {APP} runs" in capsys.readouterr().out
    sight = scripts.sight(APP, lambda _: True)
    end = sight.end_of(driver.id)
    assert end is not None
    assert (sight.drivers, end.how, end.why) == ((), "stopped", "the day is over")
    assert stopping(APP) == DagRunState.SUCCESS, "nothing runs: nothing happens"


def test_an_application_that_never_ran_needs_a_person(
    scripts: Scripts, capsys: pytest.CaptureFixture[str]
) -> None:
    del scripts
    assert stopping("mistyped") == DagRunState.FAILED
    assert "application 'mistyped' has never run on" in capsys.readouterr().out


def test_a_driver_that_does_not_come_to_an_edge_fails_the_task(scripts: Scripts) -> None:
    """And is left to finish its batch: it stops when it can."""
    app = "unhalted"
    scripts.says(app, "run")
    driver = scripts.launch(app)
    scripts.commits(app)
    os.kill(driver.pid, signal.SIGSTOP)
    try:
        # Kafka counts a member that is silent for 6 s as gone, so the limit lies below.
        assert stopping(app, wait=timedelta(seconds=1)) == DagRunState.FAILED
    finally:
        os.kill(driver.pid, signal.SIGCONT)
    scripts.sight(app, lambda s: s.end_of(driver.id) is not None)
