"""A task that stops a stream: whoever supervises it, and whether or not it runs."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest
from airflow.sdk import DagRunState

from holdfast_airflow.triggers.stream_end import StreamEndTrigger
from state_lib.drivers.control import ask_to_stop
from state_lib.drivers.process import launch
from state_lib.stack.paths import Paths
from tests.dags.conftest import Scripts
from tests.dags.test_supervise_trigger import first

APP = "halted"
HOLDFAST = str(Path(sys.executable).with_name("holdfast"))


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


def counted(monkeypatch: pytest.MonkeyPatch, owner: Any, name: str) -> list[None]:
    """One entry for every call of a function from now on."""
    calls, real = list[None](), getattr(owner, name)

    def called(*given: Any) -> Any:
        calls.append(None)
        return real(*given)

    monkeypatch.setattr(owner, name, called)
    return calls


def test_a_driver_that_starts_still_is_waited_for(
    scripts: Scripts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It joins Kafka's group late; its process is seen before."""
    app = "starting"
    scripts.says(app, "run")
    scripts.launch(app)
    scripts.commits(app)
    ask_to_stop(scripts.kafka, app, why="of before")
    scripts.sight(app, lambda s: not s.drivers)
    log = Paths(scripts.settings.home).log(app)
    starting = launch(app, ["/bin/sleep", "300"], env=os.environ, log=log)
    try:
        searches = counted(monkeypatch, psutil, "process_iter")
        trigger = StreamEndTrigger(app, until=time.time() + 1, look_every_s=0.1)
        event = asyncio.run(first(trigger))
        assert len(searches) == 1, "then its process is followed"
        assert event["event"] == "timed_out"
        assert starting.id in event["text"]
        stop = ["stop", app, "--wait", "--timeout", "1"]
        given_up = subprocess.run([HOLDFAST, *stop], capture_output=True, text=True, check=False)
        assert "was asked and has not stopped in 1 s" in given_up.stderr
    finally:
        starting.end(0)
    assert asyncio.run(first(StreamEndTrigger(app)))["event"] == "stopped"
    subprocess.run([HOLDFAST, "stop", app, "--wait"], check=True)


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
