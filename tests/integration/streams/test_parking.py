"""A task whose host is away holds up no other, and catches up when it is back."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Collection, Iterator
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import orjson
import pytest
from confluent_kafka.admin import NewPartitions, NewTopic
from pyspark.sql import SparkSession

from state_lib.changelog.progress import ProgressLog, effective
from state_lib.changelog.reader import read
from state_lib.changelog.topics import progress_topic
from state_lib.client.flight import FlightHostClient
from state_lib.config import Settings
from state_lib.driver.claims import Claimant, write_claim
from state_lib.driver.epochs import Epoch, topology_id
from state_lib.driver.left_out import LeftOut
from state_lib.driver.standing import Standing
from state_lib.driver.versions import make_way
from state_lib.drivers.members import living_drivers
from state_lib.drivers.watched import Watched
from state_lib.errors import CodeChanged, HoldfastError, Superseded, Unavailable
from state_lib.host.tasks import TaskManager
from state_lib.kafka import Kafka, ends, require
from state_lib.keys import partition_for
from state_lib.protocol.marker import Marker, now_ms
from state_lib.protocol.placement import owner_of
from state_lib.protocol.positions import Positions
from state_lib.restore.plan import CHANGELOG
from state_lib.spark.align import Read, align, initial_positions
from state_lib.spark.batches import Batches
from state_lib.spark.frames import Combiner
from state_lib.spark.parking import Parking
from state_lib.spark.session import kafka_options, read_range
from state_lib.task import state_task
from state_lib.task.room import check_disk
from tests.support.apps import App, batch
from tests.support.declared import counting
from tests.support.held import HeldReplay
from tests.support.hosts import address, publish, served
from tests.support.waiting import until

PARTITIONS, PARK_S, AWAY = 4, 1.0, "host-2"
WORDS = [f"w{i % 17}" for i in range(60)]


class World:
    """Four tasks on two hosts, a source, and a driver's parts without Spark's query."""

    def __init__(self, spark: SparkSession, kafka: Kafka, name: str, root: Path) -> None:
        self.spark, self.kafka, self.name, self.topic = spark, kafka, name, f"{name}-in"
        self.other = f"{name}-other"
        """Another source, whose number is one more than the number of partitions of the first."""
        self.job = counting(name, {self.topic: "counts", self.other: "others"}, PARTITIONS)
        for topic in self.job.topology.sources:
            kafka.admin().create_topics([NewTopic(topic, 1, 1)])[topic].result()
        self.app = App(kafka, self.job.topology, root)
        self.app.create()
        self.addresses = [address("host-1"), address(AWAY)]
        self.settings = Settings.load(
            bootstrap_servers=str(kafka.properties["bootstrap.servers"]),
            hosts=",".join(map(str, self.addresses)),
            exchange_timeout_s=5,
            park_after_s=PARK_S,
        )
        self.running = {a.id: ExitStack() for a in self.addresses}
        self.managers: dict[str, TaskManager] = {}
        for host in self.running:
            self.start(host)
        self.theirs = [p for p in range(PARTITIONS) if self.owner(p) == AWAY]
        assert 0 < len(self.theirs) < PARTITIONS, "each host has tasks, or this shows nothing"
        self.sent = 0

    def owner(self, task: int) -> str:
        return owner_of(self.name, task, self.addresses).id

    def start(self, host: str) -> None:
        at = next(a for a in self.addresses if a.id == host)
        manager = served(self.app, at, hosts=self.addresses)
        self.managers[host] = self.running[host].enter_context(manager)

    def stop(self, host: str) -> None:
        self.running[host].close()

    def produce(self, at: int = 0) -> int:
        """Twenty words more, now or at a time (ms); returns the end of the topic."""
        producer = self.kafka.producer(self.topic)
        for word in WORDS[self.sent : self.sent + 20]:
            producer.produce(self.topic, word.encode(), partition=0, timestamp=at)
        producer.flush(30)
        self.sent += 20
        return ends(self.kafka.admin(), [(self.topic, 0)])[self.topic, 0]

    def driver(self, watched: Watched | None = None) -> Driven:
        return Driven(self, watched)

    def counts(self) -> dict[bytes, int]:
        """Of all tasks."""
        out: dict[bytes, int] = {}
        for task in range(PARTITIONS):
            _, entries = self.managers[self.owner(task)].task(self.name, task).scan("counts")
            out |= {key: int.from_bytes(value[8:], "big") for key, value in entries}
        return out

    def expected(self) -> dict[bytes, int]:
        return {word.encode(): n for word, n in Counter(WORDS[: self.sent]).items()}


class Driven:
    """What a driver holds after its claim."""

    def __init__(self, world: World, watched: Watched | None = None) -> None:
        self.world, kafka, job = world, world.kafka, world.job
        sources = require(kafka.admin(), job.topology.sources)
        who = None if watched is None else watched.presence.who
        number = write_claim(kafka, job.topology, who, job.fingerprint, world.addresses)
        self.epoch = Epoch(number, topology_id(kafka, world.name))
        hosts = tuple(world.addresses)
        self.claimant = Claimant(job.topology, self.epoch, hosts, None, lambda: False)
        left_out = LeftOut(kafka, job.topology, sources, PARK_S)
        markers = self.claimant.all(5.0, left_out.of(self.epoch))
        ids = {t: f.id for t, f in sources.items()}
        self.standing = Standing(self.epoch.number, markers, ids, parked=left_out.parked)
        combiner = Combiner(world.spark, job.aggregations, PARTITIONS)
        self.batches = Batches(job, world.settings, kafka, combiner, self.standing, None)
        at = initial_positions(kafka.admin(), markers, sources)
        if any(x != m.positions for x, m in zip(at, markers, strict=True)):
            self.batches.initial(at)
        options = kafka_options(world.settings, list(job.topology.sources))
        self.read: Read = lambda from_, to: read_range(world.spark, options, from_, to)
        self.records = ProgressLog(kafka, world.name).read
        assert align(self.batches, self.read, self.records, lambda: False)

    def stream(self) -> None:
        """A batch of all that there is."""
        end = ends(self.world.kafka.admin(), self.standing.positions)
        at, to = (
            orjson.dumps(Positions(p).to_json()).decode() for p in (self.standing.positions, end)
        )
        self.batches.stream(self.read(at, to), end)

    def parking(self) -> Parking:
        claim = self.claimant.one
        return Parking(self.batches, claim, self.read, self.records, lambda: False)

    def come_back(self, parking: Parking) -> None:
        def all_there() -> bool:
            parking.bring_back(30.0)
            return not self.standing.parked

        until(all_there, 60, "no task is parked")

    def close(self) -> None:
        self.batches.close()


@pytest.fixture
def world(spark: SparkSession, kafka: Kafka, name: str, tmp_path: Path) -> Iterator[World]:
    made = World(spark, kafka, name, tmp_path)
    yield made
    for host in made.running.values():
        host.close()


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


def _told(world: World) -> list[list[int]]:
    """The parked tasks, by each record that says so."""
    topic = progress_topic(world.name)
    end = ends(world.kafka.admin(), [(topic, 0)])[topic, 0]
    said: list[Any] = [
        orjson.loads(m.value() or b"{}") for ms in read(world.kafka, topic, 0, 0, end) for m in ms
    ]
    return [sorted(int(p) for p in one["parked"]) for one in said if one.get("kind") == "parked"]
