"""What a later try of a supervising task makes of what happened since the one before."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowException

from state_lib.drivers.control import ask_to_stop
from state_lib.drivers.process import DriverProcess
from state_lib.drivers.requests import Requests
from state_lib.drivers.supervision import Supervision
from tests.dags.conftest import Connect, Scripts
from tests.dags.test_adoption import Task
from tests.dags.test_supervise_trigger import first


def ran(scripts: Scripts, app: str) -> None:
    """An application that has run and has stopped."""
    scripts.says(app, "run")
    scripts.launch(app)
    scripts.commits(app)
    ask_to_stop(scripts.kafka, app, why="of before")
    scripts.sight(app, lambda s: not s.drivers)


@pytest.fixture
def yarn(connect: Connect) -> None:
    """A cluster, which refuses while there is a file of that name."""
    connect("yarn", "scripted", extra={"deploy-mode": "cluster", "spark-binary": "spark2-submit",
            "yarn_resourcemanager_webapp_address": "http://127.0.0.1:1"})  # fmt: skip


@pytest.mark.parametrize(
    ("handover", "cleared", "stops"),
    [(False, False, True), (False, True, False), (True, False, False)],
)
def test_a_stop_since_the_try_before_is_heeded(
    scripts: Scripts, yarn: None, tmp_path: Path, handover: bool, cleared: bool, stops: bool
) -> None:
    """Which had failed to launch a driver; unless the task was cleared, which starts anew."""
    del yarn
    app = f"between_{cleared}_{stops}".lower()
    ran(scripts, app)
    (tmp_path / "refuses").touch()
    task = Task(app)
    with pytest.raises(AirflowException, match="did not take the driver"):
        task.execute()
    ask_to_stop(scripts.kafka, app, why="a person", handover=handover)
    if stops:
        expected = {"event": "stopped", "text": f"{app} was asked to stop: a person"}
        assert task.again() == expected
        return
    with pytest.raises(AirflowException, match="did not take the driver"):
        task.again(cleared=cleared)


def test_a_stop_between_a_drivers_launch_and_its_claim_is_heeded_by_the_next_try(
    scripts: Scripts, tmp_path: Path
) -> None:
    """The driver heard it and is gone when the worker that launched it has died."""
    app = "before_its_claim"
    ran(scripts, app)
    scripts.says(app, "late")
    task = Task(app, env={"SCRIPTED_APP": app})
    driver = task.execute().process["id"]
    ask_to_stop(scripts.kafka, app, why="a person")
    (tmp_path / f"{app}.claims").touch()
    gone = scripts.sight(app, lambda s: s.end_of(driver) is not None and not s.drivers)
    assert gone.driver == driver, "its claim came after the stop"
    assert task.again() == {"event": "stopped", "text": f"{app} was asked to stop: a person"}


def test_a_stop_since_the_try_before_is_meant_for_the_stream(scripts: Scripts) -> None:
    """Its driver, which the next try adopts, is not followed by another one."""
    app = "since"
    scripts.says(app, "deaf")
    scripts.launch(app)
    scripts.commits(app)
    task = Task(app)
    assert task.execute().supervision["requests"]["ending"] == -1
    ask_to_stop(scripts.kafka, app, why="a person")
    assert task.again().supervision["requests"]["ending"] == -1


@pytest.mark.parametrize("handed", [False, True])
def test_a_stop_is_not_forgotten_with_a_driver_that_is_adopted_and_killed(
    scripts: Scripts, handed: bool
) -> None:
    """It has not claimed when the next try finds it, so no claim tells what it heeds."""
    app = f"adopted_and_killed_{handed}".lower()
    ran(scripts, app)
    scripts.says(app, "late")
    task = Task(app, env={"SCRIPTED_APP": app})
    process = DriverProcess.from_json(task.execute().process)
    ask_to_stop(scripts.kafka, app, why="a person")
    if handed:  # the try before was killed while it looked at this driver
        ask_to_stop(scripts.kafka, app, why="its task was killed", handover=True)
    trigger = task.again()
    assert trigger.process["id"] == process.id
    os.kill(process.pid, signal.SIGKILL)
    event = asyncio.run(asyncio.wait_for(first(trigger), 90))
    assert event["event"] == "stopped"
    assert event["text"] == f"{app} was asked to stop: a person"


@pytest.mark.parametrize("cleared", [True, False])
def test_a_clear_that_no_triggerer_saw_starts_a_new_driver(scripts: Scripts, cleared: bool) -> None:
    app = f"unseen_{cleared}".lower()
    scripts.says(app, "deaf")
    process = scripts.launch(app)
    scripts.commits(app)
    task = Task(app, env={"SCRIPTED_APP": app})
    task.execute()
    trigger = task.again(cleared=cleared)
    assert trigger.process["id"] == process.id
    sight = scripts.sight(app, lambda _: True)
    assert trigger.supervision["requests"]["ending"] == sight.stop_offset
    assert (sight.handover_asked is not None) is cleared
    assert sight.stop_asked is None
    scripts.says(app, "run")
    os.kill(process.pid, signal.SIGKILL)
    event = asyncio.run(asyncio.wait_for(first(trigger), 90))
    assert event["event"] == "restart"
    assert ("That ends a driver and not the stream" in event["text"]) is cleared
    started = task.restart(Supervision.from_json(event["supervision"])).process["id"]
    scripts.commits(app, other_than=process.id)
    assert scripts.sight(app, lambda _: True).driver == started


def test_a_driver_that_airflow_cannot_keep_is_asked_to_stop(scripts: Scripts, yarn: None) -> None:
    """A cluster has taken it: nobody would know of it."""
    del yarn
    app = "unkept"
    ran(scripts, app)
    task = Task(app)

    def fails(key: str, value: Any) -> None:
        if key == "driver":
            raise AirflowException("Airflow's database is away")
        task.kept[key] = value

    task.store.set = fails
    with pytest.raises(AirflowException, match="database is away"):
        task.execute()
    asked = scripts.sight(app, lambda s: s.handover_asked is not None)
    assert asked.stop_asked is not None
    assert asked.stop_asked.why == "of before"


@pytest.mark.parametrize("submitted", [True, False])
def test_a_task_that_is_killed_while_it_runs_leaves_no_driver(
    scripts: Scripts, request: pytest.FixtureRequest, submitted: bool
) -> None:
    """One that it has adopted or submitted is asked to stop."""
    app = f"marked_{submitted}".lower()
    if submitted:
        request.getfixturevalue("yarn")
        ran(scripts, app)
    else:
        scripts.says(app, "run")
        scripts.launch(app)
        scripts.commits(app)
    task = Task(app)

    def kept(key: str, value: Any) -> None:
        task.kept[key] = value
        if key == "driver":
            task.kill()

    task.store.set = kept
    with pytest.raises(AirflowException, match="killed before its driver was watched"):
        task.execute()
    scripts.sight(app, lambda s: s.handover_asked is not None)


def test_a_handover_that_two_asked_for_starts_a_new_driver(scripts: Scripts) -> None:
    """The triggerer and the next try both: the second request is no stop of the stream."""
    app = "asked_twice"
    ran(scripts, app)
    base = scripts.sight(app, lambda s: s.stop is not None)
    ask_to_stop(scripts.kafka, app, why="cleared", handover=True)
    scripts.sight(app, lambda s: s.stop_offset > base.stop_offset)
    requests = Requests(stale=base.stop_offset)
    task = Task(app, env={"SCRIPTED_APP": app})
    trigger = task.restart(Supervision(app, "gone", 0, base=0, requests=requests))
    driver = trigger.process["id"]
    n = scripts.commits(app, other_than=base.driver).batch_number
    still = scripts.sight(app, lambda s: s.batch_number > n + 5)
    assert still.driver == driver
    assert still.drivers == (driver,)
    assert trigger.supervision["requests"]["ending"] == -1
