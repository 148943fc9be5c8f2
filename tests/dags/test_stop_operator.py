"""A task that stops a stream: whoever supervises it, and whether or not it runs."""

from __future__ import annotations

import os
import signal
from typing import Any

import pytest
from airflow.sdk import DagRunState

from tests.dags.conftest import Scripts

APP = "halted"


def stopping(scripts: Scripts, app: str) -> Any:
    """One run of a DAG that stops the application; its state."""
    return scripts.bag.dags[f"stop_{app}"].test().state


def test_it_waits_until_the_driver_has_stopped(
    scripts: Scripts, capsys: pytest.CaptureFixture[str]
) -> None:
    scripts.says(APP, "run")
    driver = scripts.launch(APP)
    scripts.commits(APP)
    assert stopping(scripts, APP) == DagRunState.SUCCESS
    assert f"no driver of {APP} runs" in capsys.readouterr().out
    sight = scripts.sight(APP, lambda _: True)
    end = sight.end_of(driver.id)
    assert end is not None
    assert (sight.drivers, end.how, end.why) == ((), "stopped", "the day is over")
    assert stopping(scripts, APP) == DagRunState.SUCCESS, "nothing runs: nothing happens"


def test_an_application_that_never_ran_needs_a_person(
    scripts: Scripts, capsys: pytest.CaptureFixture[str]
) -> None:
    assert stopping(scripts, "mistyped") == DagRunState.FAILED
    assert "application 'mistyped' has never run on" in capsys.readouterr().out


def test_a_driver_that_does_not_come_to_an_edge_fails_the_task(
    scripts: Scripts, capsys: pytest.CaptureFixture[str]
) -> None:
    """And is left to finish its batch: it stops when it can."""
    app = "unhalted"
    scripts.says(app, "run")
    driver = scripts.launch(app)
    scripts.commits(app)
    os.kill(driver.pid, signal.SIGSTOP)
    try:
        # Kafka counts a member that is silent for 6 s as gone, so the limit lies below.
        assert stopping(scripts, app) == DagRunState.FAILED
    finally:
        os.kill(driver.pid, signal.SIGCONT)
    assert f"driver {driver.id} of {app} (process {driver.pid} on " in capsys.readouterr().out
    scripts.sight(app, lambda s: s.end_of(driver.id) is not None)
