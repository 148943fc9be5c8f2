"""Which requests a driver that is found heeds, and what its end means then."""

from __future__ import annotations

import asyncio
import socket

import pytest

from holdfast_airflow.adoption import find_driver
from state_lib.drivers.control import ask_to_stop
from state_lib.drivers.identity import Identity
from state_lib.drivers.presence import Presence
from state_lib.drivers.process import DriverProcess
from tests.dags.conftest import Scripts
from tests.dags.test_adoption import JOB, LOG, Task
from tests.dags.test_supervise_trigger import first
from tests.dags.test_tries import ran


@pytest.mark.parametrize("after", [True, False])
def test_a_stop_before_somebody_started_a_driver_is_not_meant_for_it(
    scripts: Scripts, after: bool
) -> None:
    """Its crash is a crash; a stop that it hears is one."""
    app = f"by_hand_{after}".lower()
    ran(scripts, app)
    task = Task(app, env={"SCRIPTED_APP": app})
    before = scripts.sight(app, lambda _: True).driver
    task.execute()
    scripts.commits(app, other_than=before)
    ask_to_stop(scripts.kafka, app, why="a person")
    ended = scripts.sight(app, lambda s: s.stop is not None and not s.drivers)
    scripts.says(app, "deaf")
    theirs = scripts.by_hand(app)
    try:
        claimed = scripts.commits(app, other_than=ended.driver)
        if after:
            ask_to_stop(scripts.kafka, app, why="once more")
            scripts.sight(app, lambda s: s.stop == "once more")
        trigger = task.again()
        assert trigger.process["id"] == claimed.driver
        theirs.kill()
        theirs.wait()
        event = asyncio.run(asyncio.wait_for(first(trigger), 90))
        assert event["event"] == ("stopped" if after else "restart")
    finally:
        theirs.kill()
        theirs.wait()


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
