"""Ticks: the clock of an idle application moves for all tasks, or for none that stays behind."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import NewTopic

from state_lib.config import Settings
from state_lib.driver.standing import Standing
from state_lib.errors import Unavailable
from state_lib.executor.exchange import exchange
from state_lib.host.tasks import TaskManager
from state_lib.kafka import Kafka
from state_lib.protocol.marker import Marker
from state_lib.protocol.placement import owner_of
from state_lib.protocol.positions import Positions
from state_lib.spark.batches import Batches
from tests.support.apps import NOON, App
from tests.support.declared import counting
from tests.support.hosts import address, claim, publish, served

PARTITIONS = range(4)


def test_a_tick_that_only_some_tasks_took_is_kept_and_repeated(
    kafka: Kafka, name: str, tmp_path: Path
) -> None:
    source = f"{name}-in"
    application = counting(name, {source: "counts"}, len(PARTITIONS))
    for future in kafka.admin().create_topics([NewTopic(source, 1, 1)]).values():
        future.result()
    app = App(kafka, application.topology, tmp_path)
    app.create()
    hosts = [address("host-1"), address("host-2")]
    owned = {h.id: [p for p in PARTITIONS if owner_of(name, p, hosts) is h] for h in hosts}
    assert all(owned.values()), "each host has tasks, or this test shows nothing"
    settings = Settings.load(
        bootstrap_servers=str(kafka.properties["bootstrap.servers"]),
        hosts=",".join(f"{h.id}={h.host}:{h.flight_port}/{h.http_port}" for h in hosts),
        exchange_timeout_s=1,
    )
    epoch = publish(app)
    no_spark: Any = None
    with served(app, hosts[0], hosts=hosts) as first, ExitStack() as other:
        second = other.enter_context(served(app, hosts[1], hosts=hosts))
        owner = {p: first if p in owned["host-1"] else second for p in PARTITIONS}
        standing = Standing(epoch, [claim(owner[p], app, epoch, p) for p in PARTITIONS], {})
        batches = Batches(application, settings, kafka, no_spark, standing, None)
        with closing(batches):
            start = {(source, 0): 0}
            batches.initial([start for _ in PARTITIONS])
            standing.positions = start
            assert not batches.tick(), "no event was ever seen"
            seen = Positions({(source, 0): NOON})
            standing.markers = [replace(m, maxima=seen) for m in standing.markers]
            other.close()
            with pytest.raises(Unavailable):
                batches.tick()
            taken = [first.task(name, p).marker.stream_time_ms for p in owned["host-1"]]
            assert taken == [NOON] * len(taken)
            assert standing.stream_time_ms == NOON, (
                "the next batch must not be judged by an earlier clock"
            )

            again = other.enter_context(served(app, hosts[1], hosts=hosts))
            owner = {p: first if p in owned["host-1"] else again for p in PARTITIONS}
            behind: list[Marker] = [claim(again, app, epoch, p) for p in owned["host-2"]]
            assert all(m.stream_time_ms < NOON for m in behind)
            assert batches.tick(), "for the tasks that missed it"
            assert {owner[p].task(name, p).marker.stream_time_ms for p in PARTITIONS} == {NOON}
            assert not batches.tick(), "all stand at it"


@contextmanager
def started(kafka: Kafka, name: str, root: Path) -> Iterator[tuple[TaskManager, Batches]]:
    """Two tasks of a source with two partitions, on one host, and what runs their batches."""
    source, at = f"{name}-in", address()
    application = counting(name, {source: "counts"}, 2)
    kafka.admin().create_topics([NewTopic(source, 2, 1)])[source].result()
    app = App(kafka, application.topology, root)
    app.create()
    settings = Settings.load(
        bootstrap_servers=str(kafka.properties["bootstrap.servers"]),
        hosts=str(at),
        exchange_timeout_s=10,
    )
    epoch = publish(app)
    no_spark: Any = None
    with served(app, at) as host:
        standing = Standing(epoch, [claim(host, app, epoch, p) for p in range(2)], {})
        with closing(Batches(application, settings, kafka, no_spark, standing, None)) as made:
            yield host, made


def test_a_tick_whose_answers_were_lost_is_repeated(
    kafka: Kafka, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All tasks took it, and the driver does not know: the clock must not go back for it."""

    def deaf(*of: Any) -> Marker:
        exchange(*of)
        raise Unavailable("the answer was lost")

    with started(kafka, name, tmp_path) as (host, batches):
        standing, start = batches.standing, {(f"{name}-in", p): 0 for p in range(2)}
        batches.initial([start, start])
        standing.positions = start
        seen = Positions({(f"{name}-in", 0): NOON})
        standing.markers = [replace(m, maxima=seen) for m in standing.markers]
        before = list(standing.markers)
        with monkeypatch.context() as patched:
            patched.setattr("state_lib.driver.direct.exchange", deaf)
            with pytest.raises(Unavailable, match="the answer was lost"):
                batches.tick()
        assert [host.task(name, p).marker.stream_time_ms for p in range(2)] == [NOON, NOON]
        assert standing.markers == before, "as far as the driver knows"
        assert standing.stream_time_ms == NOON, (
            "the next batch must not be judged by an earlier clock"
        )
        assert standing.parked == {}
        assert batches.tick(), "nobody has said that it was taken"
        assert [m.stream_time_ms for m in standing.markers] == [NOON, NOON]
        assert not batches.tick(), "all stand at it"


def test_a_new_partition_moves_no_clock(kafka: Kafka, name: str, tmp_path: Path) -> None:
    """Some tasks may have been restored to the past: what lives there is judged by its own time."""
    with started(kafka, name, tmp_path) as (_, batches):
        standing, source = batches.standing, f"{name}-in"
        one = {(source, 0): 0}
        batches.initial([one, one])
        standing.positions = one
        ahead = replace(standing.markers[1], stream_time_ms=NOON)
        standing.markers[1] = ahead  # as if task 0 were in the past
        both = {(source, 0): 0, (source, 1): 0}
        batches.initial([both, both])
        assert [m.stream_time_ms for m in standing.markers] == [-1, NOON]
        assert standing.stream_time_ms == NOON
