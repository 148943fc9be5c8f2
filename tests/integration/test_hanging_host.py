"""A host that is stopped keeps its connections: whoever commits there waits as long as is set."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from typing import Any

import pytest
from confluent_kafka.admin import NewTopic

from state_lib.declaration import Declaration
from state_lib.driver.standing import Standing
from state_lib.errors import Unavailable
from state_lib.executor.exchange import exchange
from state_lib.executor.plan import BatchPlan, ExchangePlan
from state_lib.kafka import Kafka
from state_lib.protocol.marker import NO_TIME, CommitHeader, Marker
from state_lib.protocol.positions import Positions
from state_lib.spark import batches as module
from state_lib.spark.batches import Batches
from tests.support.apps import NOON, App, batch
from tests.support.declared import counting
from tests.support.host_process import TOKEN, Hosts
from tests.support.hosts import publish
from tests.support.waiting import SLOWNESS

NAME = "hanging-host"
SOURCE = {(f"{NAME}-in", 0): 0}
SOON_S = 6.0 * SLOWNESS
"""About a second, on any machine; without a bound it is the least of 10 s and 300 s."""
pytestmark = pytest.mark.timeout(60)


@dataclass
class Hung:
    """An application whose one task is on a real host process."""

    job: Declaration
    hosts: Hosts

    @contextmanager
    def stopped(self) -> Iterator[None]:
        pid = self.hosts.processes["host-1"].pid
        os.kill(pid, signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(pid, signal.SIGCONT)


@pytest.fixture(scope="module")
def hung(kafka: Kafka, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hung]:
    job = counting(NAME, {f"{NAME}-in": "counts"}, 1)
    kafka.admin().create_topics([NewTopic(f"{NAME}-in", 1, 1)])[f"{NAME}-in"].result()
    app = App(kafka, job.topology, tmp_path_factory.mktemp(NAME))
    app.create()
    hosts = Hosts(app)
    try:
        hosts.start(publish(app))
        yield Hung(job, hosts)
    finally:
        hosts.stop()


def test_an_exchange_ends_when_its_time_is_over(hung: Hung) -> None:
    hosts = hung.hosts
    with hosts.client() as client:
        before = client.marker(NAME, 0)
        batch = BatchPlan(
            hosts.epoch,
            before.batch_number + 1,
            before.positions,
            before.positions,
            NO_TIME,
            0,
            0,
            {},
        )
        plan = ExchangePlan(NAME, 1, (), batch, tuple(hosts.settings.host_addresses), TOKEN, 1.0)
        with hung.stopped():
            began = time.monotonic()
            with pytest.raises(Unavailable, match="cannot be reached"):
                exchange(plan, 0, None, client)
            assert time.monotonic() - began < SOON_S
        assert exchange(plan, 0, None, client).batch_number == batch.batch_number


def test_a_host_that_hangs_within_an_exchange_is_not_waited_for(hung: Hung) -> None:
    hosts = hung.hosts
    with hosts.client() as client:
        n = client.marker(NAME, 0).batch_number + 1

        def hang_and_commit() -> None:
            with client.exchange(NAME, 0, hosts.epoch, n, 50.0, 1.0) as exchange, hung.stopped():
                exchange.commit(_header(exchange.marker, n))

        began = time.monotonic()
        with pytest.raises(Unavailable, match=r"host-1 .* has not answered for 1 s in the middle"):
            hang_and_commit()
        assert time.monotonic() - began < SOON_S
        with client.exchange(NAME, 0, hosts.epoch, n + 1, 50.0, 1.0) as exchange:
            header = _header(exchange.marker, n + 1)
            assert exchange.commit(header).batch_number == n + 1, "it goes on"


def test_a_slow_host_that_answers_is_waited_for(hung: Hung) -> None:
    hosts, slow_s = hung.hosts, 3.0
    hosts.armed.write_text(f"commit.before_transaction=sleep:{slow_s}")
    try:
        with hosts.client() as client:
            n = client.marker(NAME, 0).batch_number + 1
            with client.exchange(NAME, 0, hosts.epoch, n, 50.0, 1.0) as exchange:
                began = time.monotonic()
                assert exchange.commit(_header(exchange.marker, n)).batch_number == n
                assert time.monotonic() - began > slow_s - 0.5
    finally:
        hosts.armed.write_text("")


@pytest.mark.parametrize(("tick_s", "exchange_s"), [(1.0, 300), (10.0, 1)])
def test_a_tick_ends_when_its_time_is_over(
    hung: Hung, monkeypatch: pytest.MonkeyPatch, tick_s: float, exchange_s: float
) -> None:
    """No batch begins meanwhile, and no stop is heard."""
    monkeypatch.setattr(module, "_TICK_S", tick_s)
    hosts, none = hung.hosts, _nothing()
    settings = hosts.settings.model_copy(update={"exchange_timeout_s": exchange_s})
    with hosts.client() as client:
        marker = client.marker(NAME, 0)
    standing = Standing(hosts.epoch, [marker], {}, batch_number=marker.batch_number)
    with closing(Batches(hung.job, settings, hosts.app.kafka, none, standing, TOKEN)) as batches:
        if marker.positions != SOURCE:
            batches.initial([SOURCE])
        standing.positions = SOURCE
        seen = Positions(dict.fromkeys(SOURCE, max(NOON, standing.stream_time_ms) + 1))
        standing.markers = [replace(m, maxima=seen) for m in standing.markers]
        with hung.stopped():
            began = time.monotonic()
            with pytest.raises(Unavailable, match="cannot be reached"):
                batches.tick()
            assert time.monotonic() - began < SOON_S
        assert batches.tick(), "it is repeated"
        assert standing.is_level


def _header(marker: Marker, n: int) -> CommitHeader:
    """Of a commit that moves nothing: one that was under way may come before it or after it."""
    return replace(batch(marker, n=n).header, to=marker.positions)


def _nothing() -> Any:
    """Where Spark would be."""
    return None
