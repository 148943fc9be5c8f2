"""A task that stops a stream: whoever supervises it, and whether or not it runs."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import psutil
import pytest
from airflow.sdk import DagRunState

from holdfast_airflow.settings import settings_of
from holdfast_airflow.triggers.stream_end import StreamEndTrigger
from state_lib import processes
from state_lib.config import Settings
from state_lib.drivers.control import ask_to_stop
from state_lib.drivers.here import Here
from state_lib.drivers.identity import ID_VARIABLE
from state_lib.drivers.process import launch
from state_lib.drivers.sight import Sight
from state_lib.stack.paths import Paths
from tests.dags.conftest import Scripts
from tests.dags.test_supervise_trigger import first
from tests.support.waiting import until

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


def looking_thrice(trigger: StreamEndTrigger, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What the trigger comes to if its time is over with its third look."""
    looks, real = list[Sight](), Here.drivers

    def looked(here: Here, sight: Sight) -> tuple[str, ...]:
        looks.append(sight)
        trigger.until = None if len(looks) < 3 else 0.0
        return real(here, sight)

    monkeypatch.setattr(Here, "drivers", looked)
    event = asyncio.run(first(trigger))
    assert len(looks) == 3
    return event


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
        # While a process becomes another program it has no environment.
        until(lambda: processes.carries(psutil.Process(starting.pid), ID_VARIABLE, starting.id))
        searches = counted(monkeypatch, psutil, "process_iter")
        event = looking_thrice(StreamEndTrigger(app, look_every_s=0.1), monkeypatch)
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


@pytest.mark.usefixtures("settings")
def test_airflows_other_triggers_are_not_held_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Settings are read beside their event loop, and what that needs is imported there."""
    threads: list[threading.Thread] = []

    def noted(env: Mapping[str, str]) -> Settings:
        threads.append(threading.current_thread())
        return settings_of(env)

    for module in ("stream_end", "watch"):
        monkeypatch.setattr(f"holdfast_airflow.triggers.{module}.settings_of", noted)
    assert asyncio.run(first(StreamEndTrigger("never")))["event"] == "stopped"
    assert len(threads) == 2, "for what runs here, and for Kafka"
    assert threading.main_thread() not in threads


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
    scripts.says(app, "deaf")
    driver = scripts.launch(app)
    scripts.commits(app)
    assert stopping(scripts, app) == DagRunState.FAILED
    scripts.says(app, "run")
    assert f"driver {driver.id} of {app} (process {driver.pid} on " in capsys.readouterr().out
    scripts.sight(app, lambda s: s.end_of(driver.id) is not None)
