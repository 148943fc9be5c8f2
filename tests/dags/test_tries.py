"""What a later try of a supervising task makes of what happened since the one before."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowException

from holdfast_airflow.adoption import find_driver
from state_lib.drivers.control import ask_to_stop
from state_lib.drivers.identity import Identity
from state_lib.drivers.presence import Presence
from state_lib.drivers.process import DriverProcess
from state_lib.drivers.requests import Requests
from state_lib.drivers.supervision import Supervision
from tests.dags.conftest import Connect, Scripts
from tests.dags.test_adoption import JOB, LOG, Task
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
    task = Task(app)
    task.execute()
    trigger = task.again(cleared=cleared)
    assert trigger.process["id"] == process.id
    sight = scripts.sight(app, lambda _: True)
    assert trigger.supervision["requests"]["ending"] == sight.stop_offset
    assert (sight.handover_asked is not None) is cleared
    assert sight.stop_asked is None


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


def test_only_a_stop_that_a_driver_heeds_is_its_end(scripts: Scripts) -> None:
    """One that was launched after a stop, and has not claimed yet, runs on."""
    app = "heeding"
    scripts.says(app, "deaf")
    process = scripts.launch(app)
    scripts.commits(app)
    ask_to_stop(scripts.kafka, app, why="a person")
    stop = scripts.sight(app, lambda s: s.stop is not None).stop_offset
    for heeds_from, ending in ((stop, stop), (stop + 1, -1)):
        found = find_driver(scripts.settings, app, process, JOB, LOG, heeds_from=heeds_from)
        assert found.process == process
        assert found.ending == ending


@pytest.mark.parametrize("claims", [True, False])
def test_of_a_stranger_it_is_known_what_it_heeds_once_it_has_claimed(
    scripts: Scripts, claims: bool
) -> None:
    """One that was started after a stop, and has not claimed yet, runs on."""
    app = f"stranger_{claims}".lower()
    scripts.says(app, "deaf")
    scripts.launch(app)
    claimed = scripts.commits(app).driver
    ask_to_stop(scripts.kafka, app, why="a person")
    stop = scripts.sight(app, lambda s: s.stop is not None).stop_offset
    presence = Presence(scripts.kafka, app, Identity("joined", socket.gethostname(), 0))
    known = None
    if not claims:
        presence.join()
        scripts.sight(app, lambda s: "joined" in s.drivers)
        known = DriverProcess(str(claimed), app, "elsewhere", 1, "", 0)  # that is judged gone
    try:
        found = find_driver(scripts.settings, app, known, JOB, LOG, gone=claimed)
        assert found.process is not None
        assert found.process.id == (claimed if claims else "joined")
        assert found.ending == (stop if claims else -1)
    finally:
        if not claims:
            presence.leave("stopped", "the test is over")


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
    scripts.commits(app, other_than=base.driver)
    assert scripts.sight(app, lambda s: s.driver == driver).stop is None
