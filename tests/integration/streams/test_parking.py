"""A task whose host is away holds up no other, and catches up when it is back."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import orjson
import pytest
from confluent_kafka.admin import NewPartitions
from pyspark.sql import SparkSession

from state_lib.changelog.progress import effective
from state_lib.changelog.reader import read
from state_lib.changelog.topics import progress_topic
from state_lib.client.flight import FlightHostClient
from state_lib.errors import Unavailable
from state_lib.kafka import Kafka, ends
from state_lib.keys import partition_for
from state_lib.protocol.placement import owner_of
from state_lib.restore.plan import CHANGELOG
from state_lib.task import state_task
from state_lib.task.room import check_disk
from tests.support.held import HeldReplay
from tests.support.parked import AWAY, PARTITIONS, WORDS, World
from tests.support.waiting import until


@pytest.fixture
def world(spark: SparkSession, kafka: Kafka, name: str, tmp_path: Path) -> Iterator[World]:
    with closing(World(spark, kafka, name, tmp_path)) as made:
        yield made


def test_others_go_on_and_it_catches_up(world: World) -> None:
    with closing(world.driver()) as driver, driver.parking() as parking:
        world.produce()
        driver.stream()
        world.stop(AWAY)
        for _ in range(2):
            end = world.produce()
            driver.stream()
        assert sorted(driver.standing.parked) == world.theirs
        for task in set(range(PARTITIONS)) - set(world.theirs):
            marker = world.managers["host-1"].task(world.name, task).marker
            assert marker.positions == {(world.topic, 0): end, (world.other, 0): 0}
        assert _told(world)[-1] == world.theirs

        world.start(AWAY)
        driver.come_back(parking)
        assert world.counts() == world.expected()
        assert _told(world)[-1] == []
        assert len({m.stream_time_ms for m in driver.standing.markers}) == 1
    chain = effective(driver.records(-1))
    assert [r.to[world.topic, 0] for r in chain] == [20, 40, 60], "repeats are no batches"


def test_the_clock_is_that_of_all(world: World) -> None:
    """Also of events of the parked task, which nobody has counted yet."""
    with closing(world.driver()) as driver, driver.parking() as parking:
        world.produce()
        driver.stream()
        world.stop(AWAY)
        world.produce()
        driver.stream()
        assert sorted(driver.standing.parked) == world.theirs
        theirs = next(w for w in WORDS if partition_for(w.encode(), PARTITIONS) in world.theirs)
        latest = driver.standing.maxima[world.topic, 0] + 60_000
        producer = world.kafka.producer(world.topic)
        producer.produce(world.topic, theirs.encode(), partition=0, timestamp=latest)
        producer.flush(30)
        driver.stream()
        assert driver.standing.maxima == {(world.topic, 0): latest}
        world.start(AWAY)
        driver.come_back(parking)
        assert world.counts() == world.expected() | {
            theirs.encode(): world.expected().get(theirs.encode(), 0) + 1
        }


def test_partitions_that_are_added_meanwhile_change_no_rows_task(world: World) -> None:
    """A row without a key is of the task that its source's number names: the number of then."""
    before = world.owner(1)
    more = next(n for n in range(1, PARTITIONS) if world.owner((1 + n) % PARTITIONS) != before)
    away = world.owner((1 + more) % PARTITIONS)  # it would be of there, if it were numbered anew
    with closing(world.driver()) as driver:
        world.produce()
        driver.stream()
        world.stop(away)
        producer = world.kafka.producer(world.other)
        for _ in range(3):
            producer.produce(world.other, b"\xff is no text", partition=0)
        producer.flush(30)
        world.produce()
        driver.stream()
        assert driver.standing.parked
    grown = NewPartitions(world.topic, 1 + more)
    world.kafka.admin().create_partitions([grown])[world.topic].result()
    world.start(away)
    with closing(world.driver()) as driver:
        assert not driver.standing.parked
        assert world.counts() == world.expected()
        said = [dict(m.dropped) for m in driver.standing.markers]
        assert said == [{"undecodable": 3} if p == 1 else {} for p in range(PARTITIONS)]


def test_it_goes_away_again_while_it_catches_up(world: World) -> None:
    with closing(world.driver()) as driver, driver.parking() as parking:
        world.produce()
        driver.stream()
        world.stop(AWAY)
        world.produce()
        driver.stream()
        world.start(AWAY)
        until(lambda: sorted(parking._returning) == world.theirs, 60, "can be claimed")
        world.stop(AWAY)
        parking.bring_back(30.0)
        assert sorted(driver.standing.parked) == world.theirs
        world.produce()
        driver.stream()
        world.start(AWAY)
        driver.come_back(parking)
        assert world.counts() == world.expected()


def test_a_task_whose_host_answers_and_refuses_is_parked(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full disk: claims need no room there, so it seems to be back at once."""
    with closing(world.driver()) as driver, driver.parking() as parking:
        world.produce()
        driver.stream()
        with monkeypatch.context() as full:
            full.setattr(state_task, "check_disk", _full)
            world.produce()
            driver.stream()
            assert sorted(driver.standing.parked) == world.theirs
            for pause in (4.0, 8.0):
                until(lambda: sorted(parking._returning) == world.theirs, 60, "can be claimed")
                parking.bring_back(30.0)
                assert not parking._returning, "its repeat was refused"
                assert {after for _, after in parking._pauses.values()} == {pause}
            assert sorted(driver.standing.parked) == world.theirs
        driver.come_back(parking)
        assert world.counts() == world.expected()
        assert not parking._pauses


def test_a_task_that_is_restored_is_parked_and_others_commit_and_answer(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    present = sorted(set(range(PARTITIONS)) - set(world.theirs))
    away = world.managers[AWAY]
    with closing(world.driver()) as driver, driver.parking() as parking:
        world.produce()
        driver.stream()
        tasks = [away.task(world.name, p) for p in world.theirs]
        plans = [task.plan(CHANGELOG) for task in tasks]
        held = HeldReplay(monkeypatch)
        jobs = [away.restores.start(*one) for one in zip(tasks, plans, strict=True)]
        until(lambda: held.waiting == len(tasks), 60, "all of them replay")
        for _ in range(2):
            end = world.produce()
            driver.stream()
            assert sorted(driver.standing.parked) == world.theirs
            expected = _of(world.expected(), present)
            assert expected, "or this shows nothing"
            assert _answered(world, present, end) == expected
        assert {job.state for job in jobs} == {"running"}, "it restores all the time"
        assert {away.state_of(task) for task in tasks} == {"restoring"}
        with pytest.raises(Unavailable, match="opening or restoring"):
            away.task(world.name, world.theirs[0])
        held.go.set()
        for job in jobs:
            job.result()
        driver.come_back(parking)
        assert _answered(world, range(PARTITIONS), end) == world.expected()


def _of(counts: dict[bytes, int], tasks: Collection[int]) -> dict[bytes, int]:
    """Counts of words that these tasks hold."""
    return {word: n for word, n in counts.items() if partition_for(word, PARTITIONS) in tasks}


def _answered(world: World, tasks: Collection[int], end: int) -> dict[bytes, int]:
    """What these tasks answer over Flight; they have committed all up to an end of the source."""
    out: dict[bytes, int] = {}
    for task in tasks:
        with closing(FlightHostClient(owner_of(world.name, task, world.addresses), None)) as client:
            marker, parts = client.scan(world.name, task, "counts")
            assert marker.positions[world.topic, 0] == end
            for part in parts:
                for row in part.to_pylist():
                    out[row["key"]] = int.from_bytes(row["value"][8:], "big")
    return out


def _full(name: str, path: Path, size: int) -> None:
    """As if the disk of one host were full."""
    check_disk(name, path, size + (1 << 60 if AWAY in path.parts else 0))


def test_a_tick_parks_a_task_whose_host_is_away(world: World) -> None:
    with closing(world.driver()) as driver, driver.parking() as parking:
        world.produce()
        driver.stream()
        world.stop(AWAY)
        assert driver.batches.tick()
        assert sorted(driver.standing.parked) == world.theirs
        assert not driver.batches.tick(), "those that are there have taken it"
        world.start(AWAY)
        driver.come_back(parking)
        assert driver.batches.tick(), "for those that missed it"
        assert driver.standing.is_level
        assert world.counts() == world.expected()


def test_nobody_is_left(world: World) -> None:
    with closing(world.driver()) as driver:
        world.produce()
        for host in world.running:
            world.stop(host)
        began = time.monotonic()
        with pytest.raises(Unavailable):
            driver.stream()
        assert time.monotonic() - began > 4, "as long as an exchange may take"
        assert driver.standing.parked == {}


def _told(world: World) -> list[list[int]]:
    """The parked tasks, by each record that says so."""
    topic = progress_topic(world.name)
    end = ends(world.kafka.admin(), [(topic, 0)])[topic, 0]
    said: list[Any] = [
        orjson.loads(m.value() or b"{}") for ms in read(world.kafka, topic, 0, 0, end) for m in ms
    ]
    return [sorted(int(p) for p in one["parked"]) for one in said if one.get("kind") == "parked"]
