"""A supervised driver under spark-submit: killed by halves, asked to stop, ended at an edge."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import pytest
from pydantic import SecretStr

from state_lib.drivers.control import ask_to_stop
from state_lib.drivers.pace import KNOWN
from state_lib.drivers.process import DriverProcess
from state_lib.kafka import Kafka
from tests.chaos.check import check, tasks_of
from tests.chaos.cluster import Cluster
from tests.chaos.conftest import Events
from tests.chaos.supervisor import Supervisor
from tests.support.waiting import until

pytestmark = [pytest.mark.full, pytest.mark.timeout(900)]


@pytest.fixture
def supervisor(cluster: Cluster, app: str, events: Events) -> Iterator[Supervisor]:
    events.more(3000)
    one = Supervisor(cluster, app, events.topic)
    yield one
    one.close()


def test_a_supervised_driver(
    cluster: Cluster, supervisor: Supervisor, app: str, events: Events
) -> None:
    supervisor.until("started")
    supervisor.until("committing")
    seen = supervisor.looker.look()
    assert seen.facts is not None
    assert seen.facts.log == supervisor.process.log
    assert (seen.facts.ui or "").startswith("http://")
    for victim in ("python", "java"):
        first = supervisor.process
        supervisor.half(victim).send_signal(signal.SIGKILL)
        crash = supervisor.until("crashed")
        await_end(first, f"the other half ended with {victim}")
        assert crash.details["restart_in_s"] == 1
        events.more(1000)
        supervisor.until("committing")
        check(cluster.settings, app, events.topic)
    assert supervisor.names().count("restart") == 2

    ask_to_stop(Kafka.of(cluster.settings), app, why="this test")
    stopped = supervisor.until("stopped")
    assert "this test" in stopped.text
    await_end(supervisor.process)
    assert supervisor.supervision.over


def test_a_driver_is_ended_at_an_edge(supervisor: Supervisor) -> None:
    """SIGTERM reaches the Python; the JVM above it is left alone."""
    supervisor.until("committing")
    supervisor.process.end(90)
    assert supervisor.process.alive() is False
    said = "\n".join(supervisor.process.last_lines(100))
    assert "stopped at a batch's edge" in said
    assert "signal to stop" in supervisor.until("stopped").text


def test_a_typo_in_a_job_that_never_ran_is_told_and_not_tried_again(
    cluster: Cluster, app: str, events: Events, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing was claimed yet: its log is all that it can be told by."""
    events.more(100)
    monkeypatch.setenv("CHAOS_KEY", "no_such_column")
    supervisor = Supervisor(cluster, app, events.topic)
    try:
        end = supervisor.until("gave_up")
    finally:
        supervisor.close()
    assert "no_such_column" in end.text
    assert "restart" not in supervisor.names()


def test_a_wrong_token_is_told_and_not_tried_again(
    cluster: Cluster, app: str, events: Events
) -> None:
    events.more(100)
    wrong = SecretStr("not-this")
    supervisor = Supervisor(cluster, app, events.topic, token=wrong)
    try:
        end = supervisor.until("gave_up")
    finally:
        supervisor.close()
    assert "cannot help" in end.text
    assert "token" in end.text
    assert "restart" not in supervisor.names()


def test_a_driver_that_is_taken_over_is_not_started_again(
    cluster: Cluster, supervisor: Supervisor, app: str, events: Events
) -> None:
    supervisor.until("committing")
    rival = cluster.driver(app, events.topic)
    try:
        assert "another driver" in supervisor.until("superseded").text
        await_end(supervisor.process)
        rival.wait_event("streaming")
        end = supervisor.looker.look().end_of(supervisor.process.id)
        assert end is not None
        assert end.how == "superseded"
    finally:
        rival.stop()


def test_a_host_that_hangs_is_named_and_its_tasks_are_parked(
    cluster: Cluster, supervisor: Supervisor, app: str, events: Events
) -> None:
    supervisor.until("committing")
    while len(supervisor.supervision.alarms.pace.times) < KNOWN:  # what is usual must be known
        events.more(100)
        supervisor.until_caught_up()
    pid = cluster.pid("host-1")
    os.kill(pid, signal.SIGSTOP)
    try:
        events.more(1000)
        parked = supervisor.until("parked")  # told again with each task that is parked after it
        assert "host host-1 at http://127.0.0.1:" in parked.text
        events.more(1000)
        supervisor.until_caught_up()  # the others
    finally:
        os.kill(pid, signal.SIGCONT)
    theirs = tasks_of(cluster.settings, app, "host-1")
    assert supervisor.until("unparked").details["tasks"] == theirs
    check(cluster.settings, app, events.topic)
    assert {"crashed", "restart"} & set(supervisor.names()) == set()


def await_end(process: DriverProcess, what: str = "the driver ended") -> None:
    until(lambda: not process.alive(), 60, what)
