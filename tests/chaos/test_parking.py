"""A host that is away or restores holds up its own tasks and no other; then they catch up."""

from __future__ import annotations

import os
import shutil
import signal
import time

import pytest

from state_lib.client.flight import FlightHostClient
from state_lib.errors import HoldfastError
from state_lib.kafka import Kafka, describe, ends
from state_lib.protocol.placement import owner_of
from tests.chaos.check import TASKS, check, tasks_of
from tests.chaos.cluster import Cluster
from tests.chaos.conftest import Events
from tests.support.waiting import until

pytestmark = [pytest.mark.full, pytest.mark.timeout(900)]
AWAY = "host-2"


def test_a_host_that_hangs_and_loses_its_disk(cluster: Cluster, events: Events, app: str) -> None:
    """The driver is killed meanwhile, and the next one begins without it."""
    events.more(3000)
    driver = cluster.driver(app, events.topic)
    check(cluster.settings, app, events.topic)
    pid = cluster.pid(AWAY)
    os.kill(pid, signal.SIGSTOP)
    try:
        for number in range(3):
            events.more(1000)
            _others_caught_up(cluster, app, events.topic)
            if number == 1:
                driver.kill()
                driver = cluster.driver(app, events.topic)
        assert driver.events("parked a task") == len(tasks_of(cluster.settings, app, AWAY))
    finally:
        shutil.rmtree(cluster.settings.home / "state" / AWAY / app)
        os.kill(pid, signal.SIGKILL)  # and it begins without its disk
    driver.wait_event("a parked task is back", len(tasks_of(cluster.settings, app, AWAY)))
    check(cluster.settings, app, events.topic)
    assert driver.events("streaming") == 1, "its query goes on"
    assert driver.stop() == 0


def test_batches_while_it_catches_up(cluster: Cluster, events: Events, app: str) -> None:
    """It comes back, and goes away again, while the stream is busy."""
    events.more(2000)
    driver = cluster.driver(app, events.topic)
    check(cluster.settings, app, events.topic)
    theirs = len(tasks_of(cluster.settings, app, AWAY))
    for round_ in (1, 2):
        pid = cluster.pid(AWAY)
        os.kill(pid, signal.SIGSTOP)
        try:
            deadline = time.monotonic() + 20
            while time.monotonic() < deadline or driver.events("parked a task") < theirs * round_:
                events.more(300)
                time.sleep(1)
        finally:
            os.kill(pid, signal.SIGCONT)
        events.more(3000)
        driver.wait_event("a parked task is back", theirs * round_)
    check(cluster.settings, app, events.topic)
    assert driver.events("streaming") == 1
    assert driver.stop() == 0


def _others_caught_up(cluster: Cluster, app: str, topic: str) -> None:
    hosts = cluster.settings.host_addresses
    present = [p for p in range(TASKS) if p not in tasks_of(cluster.settings, app, AWAY)]
    assert present
    assert len(present) < TASKS

    def caught_up() -> bool:
        for p in present:
            client = FlightHostClient(owner_of(app, p, hosts), "chaos")
            try:
                at = client.marker(app, p).positions
            except HoldfastError:
                return False
            finally:
                client.close()
            if sum(o for (of, _), o in at.items() if of == topic) < _written(cluster, topic):
                return False
        return True

    until(caught_up, 120, "the other tasks at the end of the source")


def _written(cluster: Cluster, topic: str) -> int:
    admin = Kafka.of(cluster.settings).admin()
    parts = describe(admin, [topic])[topic].partitions
    return sum(ends(admin, [(topic, p) for p in range(parts)]).values())
