"""A supervised driver under spark-submit: killed by halves, asked to stop, ended at an edge."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from typing import Any

import psutil
import pytest
from pydantic import SecretStr

from state_lib.drivers.control import ask_to_stop
from state_lib.drivers.events import Event, Name
from state_lib.drivers.identity import ID_VARIABLE
from state_lib.drivers.look import Looker, observe
from state_lib.drivers.process import DriverProcess
from state_lib.drivers.supervision import Supervision
from state_lib.kafka import Kafka
from state_lib.processes import marked
from tests.chaos.check import check
from tests.chaos.cluster import Cluster
from tests.chaos.conftest import Events
from tests.support.waiting import deadline_in, until

pytestmark = [pytest.mark.full, pytest.mark.timeout(900)]


class Supervisor:
    """What Airflow's trigger and operator do, in a loop."""

    def __init__(self, cluster: Cluster, app: str, topic: str, **flags: Any) -> None:
        self._cluster, self._app, self._topic, self._flags = cluster, app, topic, flags
        self.looker = Looker(cluster.settings, app)
        self.process = cluster.submit(app, topic, **flags)
        self.supervision = Supervision(app, self.process.id, time.time())
        self.told: list[Event] = []

    def until(self, name: Name, timeout_s: float = 150) -> Event:
        """Look, judge and launch, until an event."""
        deadline = deadline_in(timeout_s)
        while time.monotonic() < deadline:
            sight, alive = observe(self.looker, self.process)
            said = [] if alive else self.process.last_lines()
            new = self.supervision.feed(sight, process=alive, now=time.time(), said=said)
            self.told += new
            if self.supervision.due:
                self.relaunch()
            if found := next((e for e in new if e.name == name), None):
                return found
            time.sleep(0.5)
        raise AssertionError(f"no {name} in {self.told}:\n{self.process.last_lines()}")

    def relaunch(self) -> None:
        self.process = self._cluster.submit(self._app, self._topic, **self._flags)
        self.supervision.launched(self.process.id, time.time())

    def half(self, program: str) -> psutil.Process:
        """The JVM (java) or the Python that runs the job (python)."""
        found = [
            p
            for p in marked(ID_VARIABLE, self.process.id)
            if program in p.name() and "pyspark.daemon" not in p.cmdline()
        ]
        assert len(found) == 1, found
        return found[0]


@pytest.fixture
def supervisor(cluster: Cluster, app: str, events: Events) -> Iterator[Supervisor]:
    events.more(3000)
    one = Supervisor(cluster, app, events.topic)
    yield one
    one.process.end(0)
    one.looker.close()


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
    assert [e.name for e in supervisor.told].count("restart") == 2

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


def test_a_wrong_token_is_told_and_not_tried_again(
    cluster: Cluster, app: str, events: Events
) -> None:
    events.more(100)
    wrong = SecretStr("not-this")
    supervisor = Supervisor(cluster, app, events.topic, token=wrong)
    try:
        end = supervisor.until("gave_up")
    finally:
        supervisor.process.end(0)
        supervisor.looker.close()
    assert "cannot help" in end.text
    assert "token" in end.text
    assert "restart" not in [e.name for e in supervisor.told]


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


def await_end(process: DriverProcess, what: str = "the driver ended") -> None:
    until(lambda: not process.alive(), 60, what)
