"""Small batches that were recorded and that one task alone has done: the others repeat them."""

from __future__ import annotations

import json
import random
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import orjson
import pytest
from confluent_kafka.admin import NewTopic
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812

from jobs._recompute import judgements
from state_lib import Application, Materialized, TimeWindows, agg
from state_lib.changelog.progress import ProgressLog
from state_lib.changelog.topics import dead_letter_queue, progress_topic
from state_lib.client.flight import FlightHostClient
from state_lib.config import Settings
from state_lib.driver import runs
from state_lib.driver.claims import Claimant, write_claim
from state_lib.driver.epochs import Epoch, topology_id
from state_lib.driver.standing import Standing
from state_lib.executor.exchange import exchange
from state_lib.executor.plan import ExchangePlan
from state_lib.host.tasks import TaskManager
from state_lib.kafka import Kafka, Partition, require
from state_lib.keys import partition_for
from state_lib.protocol.marker import NO_TIME, Marker
from state_lib.protocol.positions import Positions
from state_lib.spark.align import Read, align, initial_positions
from state_lib.spark.batches import Batches
from state_lib.spark.frames import Combiner
from state_lib.spark.session import kafka_options, read_range
from tests.support.apps import NOON, App
from tests.support.fold import committed
from tests.support.hosts import address, served

PARTITIONS, MINUTE = 3, 60_000
FOR_EVER = {"retention.ms": "-1"}
KINDS = ("lines", "numbers", "pages")
STORES = ("totals", "sometimes", "words", "words_sometimes", "visits")
_WINDOWS = {"numbers": (10, 5), "lines": (7, 2), "pages": (4, 0)}
"""Size and grace in minutes of the window store of each topic, which differ."""
LATE = {"numbers": "late:sometimes", "lines": "late:words_sometimes", "pages": "late:visits"}


@dataclass(frozen=True)
class Fed:
    """A record of a feed."""

    kind: str
    partition: int
    offset: int
    value: bytes
    time: int

    @property
    def is_text(self) -> bool:
        return not self.value.startswith(b"\xff")

    @property
    def keys(self) -> list[str]:
        """Of the rows that are made of it and go to the window store of its topic."""
        if self.kind == "numbers":
            said = json.loads(self.value)
            return [said["k"]] if said["k"] is not None and said["x"] != 3 else []
        return self.value.decode().split() if self.kind == "lines" else [self.value.decode()]


@dataclass(frozen=True)
class Feed:
    """Three topics of two partitions each, and how their records were cut into batches."""

    name: str
    records: list[Fed]
    cuts: list[tuple[dict[Partition, int], int, int]]
    """Where each batch ended, its clock, and how far ahead event times might be (ms)."""

    def topic(self, kind: str) -> str:
        return f"{self.name}-{kind}"

    @classmethod
    def made(cls, kafka: Kafka, name: str, batches: int, seed: int = 7) -> Feed:
        """Records out of order, late, too early, broken, without a key; batches of none to 18."""
        feed = cls(name, [], [])
        new = [NewTopic(feed.topic(kind), 2, 1, config=FOR_EVER) for kind in KINDS]
        for done in kafka.admin().create_topics(new).values():
            done.result()
        dice = random.Random(seed)  # noqa: S311 - test data
        producer = kafka.producer(name)
        places = [(kind, p) for kind in KINDS for p in range(2)]
        end = dict.fromkeys(places, 0)
        clock = NO_TIME
        for number in range(batches):
            at = NOON + 2 * number * MINUTE
            for kind, partition in places:
                for _ in range(dice.choice((0, 1, 1, 3))):
                    time = max(0, at + dice.choice((0, 1, -3, -25, 30)) * MINUTE)
                    value = _value(dice, kind)
                    producer.produce(feed.topic(kind), value, None, partition, timestamp=time)
                    fed = Fed(kind, partition, end[kind, partition], value, time)
                    feed.records.append(fed)
                    end[kind, partition] += 1
            clock = max(clock, at - dice.choice((2, 4, 20)) * MINUTE)
            to = {(feed.topic(kind), p): offset for (kind, p), offset in end.items()}
            feed.cuts.append((to, clock, dice.choice((10, 31)) * MINUTE))
        producer.flush(30)
        return feed

    def job(self, spark: SparkSession, name: str) -> Application:
        job = Application(name, spark, partitions=PARTITIONS)
        rows = job.stream(self.topic("numbers"), "k STRING, x BIGINT NOT NULL, f DOUBLE")
        totals = rows.groupBy("k").agg(
            "totals",
            n=agg.count(),
            total=agg.sum("x"),
            f=agg.sum("f"),
            most=agg.max("x"),
            seen=agg.last("x"),
        )
        windows = {
            kind: TimeWindows(f"{size} minutes", grace=f"{grace} minutes")
            for kind, (size, grace) in _WINDOWS.items()
        }
        short = Materialized("sometimes", retention="15 minutes")
        table = rows.where("x <> 3").groupBy("k").windowedBy(windows["numbers"]).count(short)
        words = job.stream(self.topic("lines"), format="text")
        words = words.withColumn("word", F.expr("explode(split(value, ' '))"))
        words.groupBy("word").count("words")
        words.groupBy("word").windowedBy(windows["lines"]).count("words_sometimes")
        pages = job.stream(self.topic("pages"), format="text")
        pages.groupBy("value").windowedBy(windows["pages"]).count("visits")
        totals.toStream().to(f"{name}-out")
        table.toStream().to(f"{name}-windows")
        return job


def _value(dice: random.Random, kind: str) -> bytes:
    if dice.random() < 0.15:
        return b"\xff no text"
    if kind == "lines":
        return f"w{dice.randrange(9)} w{dice.randrange(9)}".encode()
    if kind == "pages":
        return f"p{dice.randrange(9)}".encode()
    key = None if dice.random() < 0.2 else f"k{dice.randrange(7)}"
    return json.dumps({"k": key, "x": dice.randrange(9), "f": dice.randrange(99) / 4}).encode()


class Chained:
    """An application of which task 0 stands at the chain's end, and no other has begun it."""

    def __init__(
        self, spark: SparkSession, kafka: Kafka, job: Application, feed: Feed, root: Path
    ) -> None:
        self.spark, self.kafka, self.job, self.feed, self.name = spark, kafka, job, feed, job.id
        outputs = {o.topic for o in job.topology.outputs}
        new = [NewTopic(topic, PARTITIONS, 1, config=FOR_EVER) for topic in outputs]
        for done in kafka.admin().create_topics(new).values() if new else ():
            done.result()
        self.app = App(kafka, job.topology, root)
        self.app.create()
        self.at = address(f"host-{job.id}")
        self.settings = Settings.load(
            bootstrap_servers=str(kafka.properties["bootstrap.servers"]),
            hosts=str(self.at),
            exchange_timeout_s=20,
            park_after_s=5,
        )
        self.stack = ExitStack()
        self.manager: TaskManager = self.stack.enter_context(served(self.app, self.at))
        self.log = ProgressLog(kafka, self.name)
        self._record()

    def _record(self) -> None:
        standing, batches = self.claim()
        with closing(batches), closing(FlightHostClient(self.at, None)) as client:
            at, plan = standing.positions, None
            for to, clock, ahead in self.feed.cuts:
                plan = replace(batches._plan(at, to, clock), now=NOON, max_future_ms=0)
                plan = replace(plan, max_future_ms=clock - NOON + ahead if clock > 0 else ahead)
                plan = replace(plan, recorded=self.log.append(plan.record()))
                at = to
            assert plan is not None
            begin = dict.fromkeys(at, 0)
            whole = replace(plan, from_=Positions(begin), tasks=(0,))
            own = ExchangePlan(self.name, PARTITIONS, (), whole, (self.at,), None, 20)
            exchange(own, 0, None, client)

    def claim(self) -> tuple[Standing, Batches]:
        """As a driver does."""
        kafka, job = self.kafka, self.job
        sources = require(kafka.admin(), job.topology.sources)
        number = write_claim(kafka, job.topology, None, job.fingerprint, [self.at])
        epoch = Epoch(number, topology_id(kafka, self.name))
        claimant = Claimant(job.topology, epoch, (self.at,), None, lambda: False)
        markers = claimant.all(20.0, lambda _: {})
        standing = Standing(number, markers, {t: f.id for t, f in sources.items()})
        combiner = Combiner(self.spark, job.aggregations, PARTITIONS)
        batches = Batches(job, self.settings, kafka, combiner, standing, None)
        at = initial_positions(kafka.admin(), markers, sources)
        if any(x != m.positions for x, m in zip(at, markers, strict=True)):
            batches.initial([dict.fromkeys(x, 0) for x in at])
            standing.positions = dict.fromkeys(at[0], 0)
        return standing, batches

    def align(self, most: int = runs.MOST_BATCHES) -> int:
        """A driver comes; ``most`` batches in a run. Returns how many runs it repeated."""
        options = kafka_options(self.settings, list(self.job.topology.sources))
        done: list[str] = []

        def ranged(from_: str, to: str) -> Any:
            done.append(to)
            return read_range(self.spark, options, from_, to)

        reader: Read = ranged
        _, batches = self.claim()
        with pytest.MonkeyPatch.context() as patched, closing(batches):
            patched.setattr(runs, "MOST_BATCHES", most)
            assert align(batches, reader, self.log.read, lambda: False)
        return len(done)

    def close(self) -> None:
        self.stack.close()

    # ------------------------------------------------------------------ what came of it

    def found(self) -> dict[str, Any]:
        """All that counts of the tasks that repeated."""
        tasks = [self.manager.task(self.name, p) for p in range(1, PARTITIONS)]
        return {
            "stores": {s: [sorted(t.scan(s)[1]) for t in tasks] for s in STORES},
            "markers": [_plain(t.marker) for t in tasks],
            "letters": sorted(m.headers() or [] for m in self._read(dead_letter_queue(self.name))),
            "outputs": {
                o.topic.removeprefix(self.name): self._last(o.topic)
                for o in self.job.topology.outputs
            },
        }

    def late_and_future(self) -> tuple[dict[str, int], dict[str, int]]:
        """How many rows the tasks that repeated found late and too early, by sort of topic."""
        late = dict.fromkeys(KINDS, 0)
        future = dict.fromkeys(KINDS, 0)
        for p in range(1, PARTITIONS):
            dropped = self.manager.task(self.name, p).marker.dropped
            for kind, reason in LATE.items():
                late[kind] += dropped.get(reason, 0)
        for letter in self._read(dead_letter_queue(self.name)):
            said = {k.removeprefix("__streams.errors."): v for k, v in letter.headers() or []}
            if said["message"] == b"future":
                future[said["topic"].decode().removeprefix(f"{self.feed.name}-")] += 1
        return late, future

    def late_and_future_by_record(self) -> tuple[dict[str, int], dict[str, int]]:
        """The same as the progress topic says it, computed from each record alone."""
        late = dict.fromkeys(KINDS, 0)
        future = dict.fromkeys(KINDS, 0)
        judged = judgements(self.judged())
        places = sorted(judged)
        for fed in self.feed.records:
            place = (self.feed.topic(fed.kind), fed.partition)
            own = next(j for j in judged[place] if j.start <= fed.offset < j.end)
            if fed.time > own.latest:
                future[fed.kind] += places.index(place) % PARTITIONS != 0
            elif fed.is_text:
                size, grace = (n * MINUTE for n in _WINDOWS[fed.kind])
                if fed.time - fed.time % size + size + grace <= own.clock:
                    tasks = [partition_for(key.encode(), PARTITIONS) for key in fed.keys]
                    late[fed.kind] += sum(task != 0 for task in tasks)
        return late, future

    def judged(self) -> list[dict[str, Any]]:
        """The records of its progress, as the audit reads them."""
        said = [orjson.loads(m.value() or b"{}") for m in self._read(progress_topic(self.name))]
        return [one for one in said if "kind" not in one]

    def _last(self, topic: str) -> dict[bytes, tuple[bytes | None, int]]:
        return {
            m.key() or b"": (m.value(), m.timestamp()[1])
            for m in self._read(topic)
            if m.partition() != 0
        }

    def _read(self, topic: str) -> list[Any]:
        servers = str(self.kafka.properties["bootstrap.servers"])
        partitions = require(self.kafka.admin(), [topic])[topic].partitions
        return [m for p in range(partitions) for m in committed(servers, topic, p)]


def _plain(marker: Marker) -> dict[str, Any]:
    said = marker.to_json()
    kept = ("positions", "maxima", "clock", "published", "dropped", "recorded")
    return {name: said[name] for name in kept}
