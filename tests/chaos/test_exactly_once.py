"""Exactly once through SIGKILL at every named point of the protocol (docs/protocol.md)."""

from __future__ import annotations

import os
import shutil
import signal
import time
from contextlib import closing
from typing import Any

import pytest

from state_lib.changelog.claims import newest_claim
from state_lib.drivers.look import Looker
from state_lib.exits import EXIT_REFUSED, EXIT_SUPERSEDED
from state_lib.kafka import Kafka
from tests.chaos.check import check
from tests.chaos.cluster import Cluster
from tests.chaos.conftest import Events
from tests.support.waiting import NotCaughtUp, StandsStill, until

pytestmark = [pytest.mark.full, pytest.mark.timeout(900)]
COMMIT_POINTS = ["commit.before_transaction", "commit.after_kafka", "commit.after_rocksdb"]


def test_hosts_killed_at_every_point(cluster: Cluster, events: Events, app: str) -> None:
    events.more(4000)
    driver = cluster.driver(app, events.topic)
    driver.wait_event("batch")
    for point in COMMIT_POINTS:
        cluster.arm(f"{point}=kill")
        events.more(3000)
        cluster.wait_fired(point)
        check(cluster.settings, app, events.topic)
    assert driver.stop() == 0
    assert driver.events("streaming") == 1, "the driver should not have noticed"


def test_the_broker_killed_at_every_point(cluster: Cluster, events: Events, app: str) -> None:
    """A second after the point, when the other tasks' transactions are complete as well.

    Kafka 4.3.1 loses the commit markers of one that is committed within milliseconds of the kill:
    see "The only broker was killed" in docs/how-to/existing-infrastructure.md. With three it does
    not: `tests.integration.test_three_brokers`.
    """
    events.more(4000)
    driver = cluster.driver(app, events.topic)
    driver.wait_event("batch")
    for point in COMMIT_POINTS:
        cluster.arm(f"{point}=kill-pid:{cluster.pid('kafka')}:1")
        events.more(3000)
        cluster.wait_fired(point)
        time.sleep(3)
        check(cluster.settings, app, events.topic)
    driver.stop()


def test_drivers_killed_at_every_point(cluster: Cluster, events: Events, app: str) -> None:
    """At its own points, between two tasks' commits of one batch, and during a host's commit."""
    events.more(3000)
    driver = cluster.driver(app, events.topic)
    driver.wait_event("batch")
    points = [
        ("driver.before_batch", "kill"),
        ("driver.after_record", "kill"),
        ("driver.after_batch", "kill"),
        ("driver.between_queries", "kill"),
        ("exchange.after_commit", "kill-jvm"),
        ("commit.after_kafka", "kill-pid:{driver}"),
    ]
    for point, action in points:
        cluster.arm(f"{point}={action.format(driver=driver.process.pid)}")
        events.more(3000)
        cluster.wait_fired(point)
        assert driver.wait(60) != 0
        driver = cluster.driver(app, events.topic)
        check(cluster.settings, app, events.topic)
    driver.stop()


def test_a_second_driver_takes_over(cluster: Cluster, events: Events, app: str) -> None:
    events.more(6000)
    first = cluster.driver(app, events.topic)
    first.wait_event("batch")
    events.more(6000)
    second = cluster.driver(app, events.topic)
    second.wait_event("streaming")
    assert first.wait(60) == 3, "a superseded driver exits with 3, so that nobody restarts it"
    events.more(3000)
    check(cluster.settings, app, events.topic)
    assert second.stop() == 0


def test_the_checkpoint_deleted_and_replaced(cluster: Cluster, events: Events, app: str) -> None:
    """Under a running driver and between starts, while markers differ between tasks."""
    folder = cluster.settings.home / "checkpoints" / app
    one_query: dict[str, Any] = {"first_offsets_per_trigger": 2000}
    events.more(6000)
    driver = cluster.driver(app, events.topic, **one_query)
    driver.wait_event("batch", 2)
    saved = folder.with_name(f"{app}-saved")
    shutil.copytree(folder, saved)
    events.more(3000)
    check(cluster.settings, app, events.topic)
    shutil.rmtree(folder)
    events.more(3000)
    _survive(cluster, events, app)
    if driver.process.poll() is not None:
        driver = cluster.driver(app, events.topic, **one_query)
    driver.wait_event("streaming")
    query = next(folder.iterdir())
    shutil.rmtree(query)
    shutil.copytree(next(saved.iterdir()), query)
    events.more(3000)
    _survive(cluster, events, app)
    driver.stop()
    cluster.arm("exchange.after_commit=kill-jvm")
    driver = cluster.driver(app, events.topic, **one_query)
    events.more(3000)
    cluster.wait_fired("exchange.after_commit")
    driver.wait(60)
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(saved, folder)
    driver = cluster.driver(app, events.topic, **one_query)
    check(cluster.settings, app, events.topic)
    driver.stop()


def _survive(cluster: Cluster, events: Events, app: str) -> None:
    """Either the driver goes on, or it ends and the next one does: the data is right."""
    try:
        check(cluster.settings, app, events.topic, timeout_s=30)
    except (NotCaughtUp, StandsStill):
        successor = cluster.driver(app, events.topic)
        check(cluster.settings, app, events.topic)
        successor.stop()


def test_edited_code_does_not_finish_what_other_code_began(
    cluster: Cluster, events: Events, app: str
) -> None:
    """A task that did the batch already would miss rows, or have them twice."""
    kafka = Kafka.of(cluster.settings)
    events.more(3000)
    driver = cluster.driver(app, events.topic)
    driver.wait_event("batch")
    cluster.arm("exchange.after_commit=kill-jvm")
    events.more(3000)
    cluster.wait_fired("exchange.after_commit")
    assert driver.wait(60) != 0
    before = newest_claim(kafka, app)
    edited = cluster.driver(app, events.topic, key="upper(k)")
    assert edited.wait(90) == EXIT_REFUSED
    assert '"code": "code-changed"' in edited.log.read_text()
    assert newest_claim(kafka, app) == before, "so that the code of before still fits"
    driver = cluster.driver(app, events.topic)
    check(cluster.settings, app, events.topic)
    edited = cluster.driver(app, events.topic, key="upper(k)")
    edited.wait_event("streaming")
    assert driver.wait(60) == EXIT_SUPERSEDED, "it was asked to make way at a batch's edge"
    assert "stopped at a batch's edge" in driver.log.read_text()
    assert edited.stop() == 0


def test_a_stop_does_not_wait_for_a_batch_that_does_not_end(
    cluster: Cluster, events: Events, app: str
) -> None:
    """Its hosts hang: whoever asked would lose patience, and kill the driver."""
    events.more(3000)
    driver = cluster.driver(app, events.topic, stop_timeout_s=2)
    driver.wait_event("batch")
    check(cluster.settings, app, events.topic)
    hosts = [cluster.pid("host-1"), cluster.pid("host-2")]
    with closing(Looker(cluster.settings, app)) as looker:
        for pid in hosts:
            os.kill(pid, signal.SIGSTOP)
        try:
            events.more(3000)
            until(lambda: looker.look().batch, 60, "a batch that waits for its hosts")
            assert driver.stop() == 0
        finally:
            for pid in hosts:
                os.kill(pid, signal.SIGCONT)
    driver = cluster.driver(app, events.topic)
    check(cluster.settings, app, events.topic)
    assert driver.stop() == 0


def test_late_rows_are_judged_as_recorded(cluster: Cluster, events: Events, app: str) -> None:
    """Cut at different batch boundaries, the late counts differ, and each is reproduced."""
    events.more(9000)
    late = {}
    for size in (500, 3000, 9000):
        name = f"{app}-{size}"
        sizes: dict[str, Any] = {"first_offsets_per_trigger": size, "max_offsets_per_trigger": size}
        driver = cluster.driver(name, events.topic, **sizes)
        late[size] = check(cluster.settings, name, events.topic)["late:hourly"]
        assert driver.stop() == 0
    assert late[500] > 0
    assert late[500] >= late[9000]
