"""Kills at random instants, a broker that is away for two minutes, sources that are not there."""

from __future__ import annotations

import os
import random
import time

import pytest
from confluent_kafka.admin import AdminClient

from state_lib.exits import EXIT_FAILED, EXIT_REFUSED
from state_lib.stack import supervisor
from tests.chaos.check import check
from tests.chaos.cluster import Cluster
from tests.chaos.conftest import Events
from tests.chaos.feed import create, feed
from tests.chaos.supervisor import Supervisor
from tests.support.waiting import SLOWNESS

RANDOM_SECONDS = float(os.environ.get("CHAOS_SECONDS", "100"))
SEED = int(os.environ.get("CHAOS_SEED", "20131121"))
pytestmark = [pytest.mark.full, pytest.mark.timeout(RANDOM_SECONDS + 840)]
AWAY_SECONDS = 120


def test_kills_at_random_instants(cluster: Cluster, events: Events, app: str) -> None:
    rng = random.Random(SEED)  # noqa: S311 - a repeatable choice
    events.more(2000)
    driver = cluster.driver(app, events.topic)
    driver.wait_event("batch")
    until = time.monotonic() + RANDOM_SECONDS
    killed = []
    while time.monotonic() < until:
        victim = rng.choice(["host-1", "host-2", "host-1", "host-2", "kafka", "driver"])
        killed.append(victim)
        if victim == "driver":
            driver.kill()
        else:
            cluster.kill(victim)
        if driver.process.poll() is not None:
            driver = cluster.driver(app, events.topic)
        time.sleep(rng.uniform(0.5, 7))
        if "kafka" not in killed[-1:]:
            events.more(500)
    if driver.process.poll() is not None:
        driver = cluster.driver(app, events.topic)
    check(cluster.settings, app, events.topic, timeout_s=180)
    assert len(set(killed)) >= 3, (SEED, killed)
    driver.stop()


def test_the_broker_is_away_for_two_minutes(cluster: Cluster, events: Events, app: str) -> None:
    """Under supervision: one alarm, the same driver, and it goes on by itself."""
    events.more(4000)
    supervised = Supervisor(cluster, app, events.topic)
    try:
        supervised.until("committing")
        driver = supervised.process.id
        supervisor.Client(cluster.stack.paths).stop("kafka")
        supervised.until("kafka_away")
        with pytest.raises(AssertionError, match="no kafka_back"):
            supervised.until("kafka_back", AWAY_SECONDS / SLOWNESS)
        cluster.stack.up(only=["kafka"])
        events.more(3000)
        supervised.until("kafka_back")
        check(cluster.settings, app, events.topic, timeout_s=180)
        names = supervised.names()
        assert names.count("kafka_away") == 1, supervised.told
        assert {"crashed", "restart", "unresponsive"} & set(names) == set(), supervised.told
        assert supervised.looker.look().driver == driver
    finally:
        supervised.close()


def test_a_source_that_is_missing_or_another_one(cluster: Cluster, app: str) -> None:
    """Both end the driver at once with an error that names the topic."""
    topic, bootstrap = f"{app}-source", cluster.settings.bootstrap_servers
    driver = cluster.driver(app, topic)
    assert driver.wait(60) == EXIT_FAILED, "somebody may create it"
    assert "missing-topic" in driver.log.read_text()
    assert topic in driver.log.read_text()
    create(bootstrap, topic)
    feed(bootstrap, topic, 0, 1000)
    driver = cluster.driver(app, topic)
    check(cluster.settings, app, topic)
    assert driver.stop() == 0
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.delete_topics([topic])[topic].result()
    time.sleep(2)
    create(bootstrap, topic)
    driver = cluster.driver(app, topic)
    assert driver.wait(60) == EXIT_REFUSED
    assert "topic-recreated" in driver.log.read_text()
