"""A stop while nothing answers: it ends before whoever asked for it kills the driver."""

from __future__ import annotations

import os
import signal
import time
from typing import Any

import pytest

from tests.chaos.check import check
from tests.chaos.cluster import Cluster, Driver
from tests.chaos.conftest import Events
from tests.support.waiting import SLOWNESS

pytestmark = [pytest.mark.full, pytest.mark.timeout(600)]


def test_a_stop_of_an_idle_stream_while_the_broker_hangs(
    cluster: Cluster, events: Events, app: str
) -> None:
    """Spark's thread asks the broker for new records."""
    events.more(3000)
    driver = cluster.driver(app, events.topic, stop_timeout_s=2)
    check(cluster.settings, app, events.topic)
    _stop_while_the_broker_hangs(cluster, driver)
    _goes_on(cluster, events, app)


def test_a_stop_within_a_batch_while_the_broker_hangs(
    cluster: Cluster, events: Events, app: str
) -> None:
    """The batch asks it, or its tasks commit there."""
    events.more(20_000)
    small: dict[str, Any] = {"first_offsets_per_trigger": 100, "max_offsets_per_trigger": 100}
    driver = cluster.driver(app, events.topic, stop_timeout_s=2, **small)
    driver.wait_event("batch", 2)
    _stop_while_the_broker_hangs(cluster, driver)
    _goes_on(cluster, events, app)


def _stop_while_the_broker_hangs(cluster: Cluster, driver: Driver) -> None:
    """Its connections stay: each call waits for a bound of its own."""
    broker = cluster.pid("kafka")
    os.kill(broker, signal.SIGSTOP)
    try:
        time.sleep(8)  # by now whatever it does waits for the broker
        began = time.monotonic()
        assert driver.stop() == 0
        assert time.monotonic() - began < 60 * SLOWNESS
    finally:
        os.kill(broker, signal.SIGCONT)


def _goes_on(cluster: Cluster, events: Events, app: str) -> None:
    events.more(500)
    driver = cluster.driver(app, events.topic)
    check(cluster.settings, app, events.topic)
    assert driver.stop() == 0
