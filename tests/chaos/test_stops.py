"""A stop while nothing answers: it ends before whoever asked for it kills the driver."""

from __future__ import annotations

import os
import signal
import time

import pytest

from tests.chaos.check import check
from tests.chaos.cluster import Cluster
from tests.chaos.conftest import Events
from tests.support.waiting import SLOWNESS

pytestmark = [pytest.mark.full, pytest.mark.timeout(600)]


@pytest.mark.parametrize("busy", [False, True])
def test_a_stop_while_the_broker_hangs(
    cluster: Cluster, events: Events, app: str, *, busy: bool
) -> None:
    """Its connections stay: calls to it wait for their own bounds, and batches in them."""
    events.more(3000)
    driver = cluster.driver(app, events.topic, stop_timeout_s=2, first_offsets_per_trigger=100)
    driver.wait_event("batch")
    if not busy:
        check(cluster.settings, app, events.topic)
    broker = cluster.pid("kafka")
    os.kill(broker, signal.SIGSTOP)
    try:
        time.sleep(8)  # by now whatever it does waits for the broker
        began = time.monotonic()
        assert driver.stop() == 0
        assert time.monotonic() - began < 60 * SLOWNESS
    finally:
        os.kill(broker, signal.SIGCONT)
    driver = cluster.driver(app, events.topic)
    check(cluster.settings, app, events.topic)
    assert driver.stop() == 0
