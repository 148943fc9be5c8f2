"""Drivers that begin, follow or end while a task is parked, and how its commits are numbered."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql import SparkSession

from state_lib.client.flight import FlightHostClient
from state_lib.driver.claims import Claimant
from state_lib.driver.epochs import Epoch
from state_lib.driver.left_out import LeftOut
from state_lib.driver.versions import make_way
from state_lib.drivers.members import living_drivers
from state_lib.drivers.watched import Watched
from state_lib.errors import CodeChanged, HoldfastError, Superseded, Unavailable
from state_lib.kafka import Kafka, require
from state_lib.protocol.marker import Marker, now_ms
from state_lib.protocol.placement import owner_of
from tests.support.apps import batch
from tests.support.hosts import publish
from tests.support.parked import AWAY, PARTITIONS, World
from tests.support.waiting import until


@pytest.fixture
def world(spark: SparkSession, kafka: Kafka, name: str, tmp_path: Path) -> Iterator[World]:
    with closing(World(spark, kafka, name, tmp_path)) as made:
        yield made


def test_a_driver_begins_without_it(world: World) -> None:
    with closing(world.driver()) as first:
        world.produce()
        first.stream()
    world.stop(AWAY)
    world.produce()
    with closing(world.driver()) as driver, driver.parking() as parking:
        assert sorted(driver.standing.parked) == world.theirs
        driver.stream()
        world.produce()
        driver.stream()
        world.start(AWAY)
        driver.come_back(parking)
        assert world.counts() == world.expected()


def test_what_its_host_had_under_way_does_not_come_after(world: World) -> None:
    """A host that hangs in the middle of a commit, and thaws when a driver began without it."""
    with closing(world.driver()) as first:
        world.produce()
        first.stream()
        epoch = first.epoch
    task = world.theirs[0]
    host = world.managers[AWAY].task(world.name, task)
    before = host.marker
    away = {p: Unavailable("hangs") for p in world.theirs}
    sources = require(world.kafka.admin(), world.job.topology.sources)
    newer, rival = _rival(world, epoch)
    left_out = LeftOut(world.kafka, world.job.topology, sources, 0.0)
    markers = left_out.of(newer)(away)
    assert {m.epoch for m in markers.values()} == {newer.number}
    assert sorted(left_out.parked) == world.theirs
    late = batch(before, {})
    with pytest.raises(HoldfastError):
        host.commit(replace(late, header=replace(late.header, to=before.positions)))
    claimed = until(lambda: _claimed(rival, task), 60, "the host takes what was written")
    assert (claimed.epoch, claimed.positions) == (newer.number, before.positions)


def _rival(world: World, before: Epoch) -> tuple[Epoch, Claimant]:
    """The claim of a newer driver, and what takes tasks for it."""
    newer = Epoch(publish(world.app, world.addresses), before.topic_id)
    return newer, Claimant(world.job.topology, newer, tuple(world.addresses), None, lambda: False)


def _claimed(claimant: Claimant, task: int) -> Marker | None:
    try:
        return claimant.one(task)
    except Unavailable:
        return None


def test_repeats_leave_no_gap_in_the_numbers_of_commits(world: World) -> None:
    """Savepoints want one commit of all, and watchers count batches by them."""
    with closing(world.driver()) as driver, driver.parking() as parking:
        world.produce()
        driver.stream()
        world.stop(AWAY)
        for _ in range(2):
            world.produce()
            driver.stream()
        before = driver.standing.batch_number
        world.start(AWAY)
        driver.come_back(parking)
        assert (
            {m.batch_number for m in driver.standing.markers}
            == {driver.standing.batch_number}
            == {before}
        )
        assert world.counts() == world.expected()


def test_tasks_that_stand_at_several_commits_come_to_one_when_it_is_calm(world: World) -> None:
    """A driver that began without some repeats for them what one of before had numbered."""
    at = now_ms()  # of all: no clock is behind
    with closing(world.driver()) as first:
        world.produce(at)
        first.stream()
        assert first.batches.tick()
    world.stop(AWAY)
    with closing(world.driver()) as second:
        world.produce(at)
        second.stream()
    with closing(world.driver()) as driver, driver.parking() as parking:
        world.start(AWAY)
        driver.come_back(parking)
        assert {m.stream_time_ms for m in driver.standing.markers} == {at}
        # Each of them alone, or both together: as they could be claimed.
        assert len({m.batch_number for m in driver.standing.markers}) > 1
        assert driver.batches.tick()
        assert len({m.batch_number for m in driver.standing.markers}) == 1
        assert not driver.batches.tick()


def test_other_code_does_not_end_a_driver_that_has_tasks_to_bring_back(world: World) -> None:
    old, new = (Watched.of(world.name, world.settings) for _ in range(2))
    asked = SimpleNamespace(presence=new.presence, stopping=new.stopping, control=Deaf())
    watched: Any = asked
    with closing(world.driver(old)) as driver, driver.parking() as parking:
        old.presence.join()
        until(lambda: living_drivers(world.kafka, world.name), 60, "a living driver")
        world.produce()
        driver.stream()
        world.stop(AWAY)
        world.produce()
        driver.stream()

        def make_way_for(code: str, accepted: str = "") -> None:
            settings = world.settings.model_copy(update={"accept_new_code": accepted})
            make_way(watched, world.kafka, world.job.topology, code, "", settings)

        with pytest.raises(
            CodeChanged, match=r"are parked.*The driver of before goes on"
        ) as refused:
            make_way_for("other")
        assert refused.value.details["tasks"] == world.theirs
        with pytest.raises(AskedToEnd):
            make_way_for("other", accepted=world.job.fingerprint)
        world.start(AWAY)
        driver.come_back(parking)
        with pytest.raises(AskedToEnd):
            make_way_for("other")
        old.presence.leave("stopped", "the test is over")


class AskedToEnd(Exception):
    """The driver of before was."""


class Deaf:
    """Where others are asked to make way."""

    def ask_to_make_way(self, drivers: list[str], why: str) -> None:
        raise AskedToEnd(drivers, why)


def test_a_task_that_never_was_is_waited_for(world: World) -> None:
    """Where it begins is decided for all tasks at once."""
    world.stop(AWAY)
    with pytest.raises(Unavailable, match=AWAY):
        world.driver()


def test_a_driver_of_before_does_not_get_a_task_that_is_not_claimed_yet(world: World) -> None:
    """What its host knows of the newer claim is enough."""
    with closing(world.driver()) as old:
        world.produce()
        old.stream()
        _, rival = _rival(world, old.epoch)
        first, *others = [p for p in range(PARTITIONS) if world.owner(p) == AWAY]
        rival.one(first)
        for task in others:
            client = FlightHostClient(owner_of(world.name, task, world.addresses), None)
            with (
                closing(client),
                pytest.raises(Superseded),
                client.exchange(world.name, task, old.epoch.number, 99),
            ):
                pass
