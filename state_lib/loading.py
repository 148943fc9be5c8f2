"""Publishes a known sequence of records to a topic, each exactly once, however often it is killed.

The sequence is deterministic and an idempotent producer leaves no gaps, so a partition always
holds a prefix of its share. A new run compares that prefix and goes on after it. (Transactions
would serve worse here: their control records make offsets differ from indexes.)
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import stamina
from confluent_kafka import KafkaError, Producer

from state_lib.changelog.admin import ensure_topics, topic_configs
from state_lib.changelog.reader import read
from state_lib.changelog.topics import TopicPlan
from state_lib.config import Settings
from state_lib.errors import ConfigurationError, Unavailable
from state_lib.kafka import NO_ANSWER, Kafka, describe, ends, starts, unavailable
from state_lib.keys import partition_for

PARTITIONS = 4
STALL_S = 120.0
"""Seconds without a delivery after which the brokers are taken to be away."""
_REPORT_EVERY = 1000  # records
_CONFIG = {
    "cleanup.policy": "delete",
    "retention.ms": "-1",
    "message.timestamp.type": "CreateTime",
    "message.timestamp.after.max.ms": "9223372036854775807",
}
Report = Callable[[int, int], None]
"""Takes how many records are there and how many there will be."""


class Record(NamedTuple):
    """A record to publish; ``timestamp`` in ms, not 0 (that is now). Without key: in turns."""

    key: bytes | None
    value: bytes
    timestamp: int


class Loaded(NamedTuple):
    """What `publish` did: records that were there and as expected, records that it added."""

    found: int
    added: int


def publish(  # noqa: PLR0913 - each is a choice of the loader
    settings: Settings,
    topic: str,
    records: Iterable[Record],
    *,
    total: int,
    limit: int | None = None,
    rate: float | None = None,
    report: Report | None = None,
) -> Loaded:
    """Bring a topic to hold the first records of a sequence, in order.

    Args:
        settings: where the brokers are.
        topic: created with ``PARTITIONS`` partitions if it is missing.
        records: the whole sequence, the same at every call.
        total: its length.
        limit: publish only so many; what is there beyond them stays and is compared as well.
        rate: most records per second.
        report: called now and then, and at the end.

    Raises:
        ConfigurationError: the topic would delete or compact records, or holds other ones.
        Unavailable: the brokers did not take records for `STALL_S` seconds.
    """
    kafka = Kafka.of(settings)
    partitions = _ready(kafka, settings, topic)
    have = _have(kafka, topic, partitions)
    found = {p: _values(kafka, topic, p, n) for p, n in enumerate(have)}
    index = [0] * partitions
    wanted = total if limit is None else min(limit, total)
    sender = _Sender(kafka, topic, rate)
    for i, record in enumerate(records):
        p = i % partitions if record.key is None else partition_for(record.key, partitions)
        if index[p] < have[p]:
            _compare(topic, p, index[p], next(found[p], None), record)
        elif i < wanted:
            sender.send(p, record)
        elif all(at >= n for at, n in zip(index, have, strict=True)):
            break
        else:
            continue
        index[p] += 1
        if report is not None and i % _REPORT_EVERY == 0 and i < wanted:
            report(i, wanted)
    sender.finish()
    _check_ends(kafka, topic, index)
    if report is not None:
        report(wanted, wanted)
    return Loaded(sum(have), sender.sent)


class _Sender:
    """Produces at a rate, and waits for the brokers without leaving gaps."""

    def __init__(self, kafka: Kafka, topic: str, rate: float | None) -> None:
        self._kafka, self._topic, self._rate = kafka, topic, rate
        self._producer: Producer | None = None
        self._failure: KafkaError | None = None
        self._heard = self._started = time.monotonic()
        self.sent = 0

    def send(self, partition: int, record: Record) -> None:
        """Queue one record; blocks while the queue is full."""
        if self._producer is None:
            # No time-out per record: dropping one while others are sent would leave a gap.
            options = {"linger.ms": 20, "compression.type": "lz4", "message.timeout.ms": 0}
            self._producer = self._kafka.producer(self._topic, **options)
            self._started = time.monotonic()
        while True:
            try:
                self._producer.produce(
                    self._topic,
                    record.value,
                    record.key,
                    partition,
                    on_delivery=self._delivered,
                    timestamp=record.timestamp,
                )
                break
            except BufferError:
                self._wait(0.1)
        self.sent += 1
        if self.sent % 500 == 0:
            self._wait(0)
        if self._rate and (ahead := self.sent / self._rate - self._since()) > 0.01:  # noqa: PLR2004
            self._wait(ahead)

    def finish(self) -> None:
        """Wait until the brokers have all records."""
        while self._producer is not None and len(self._producer):
            self._wait(0.1)

    def _since(self) -> float:
        return time.monotonic() - self._started

    def _delivered(self, error: KafkaError | None, _message: Any) -> None:
        self._heard = time.monotonic()
        self._failure = self._failure or error

    def _wait(self, seconds: float) -> None:
        if self._producer is None:
            return
        waiting = len(self._producer) > 0
        self._producer.poll(seconds)
        if not waiting:
            self._heard = time.monotonic()
        silent = time.monotonic() - self._heard
        if self._failure is not None or silent > STALL_S:
            what = f"take records of {self._topic!r} (load again: it goes on where it stopped)"
            raise unavailable(what, self._failure or NO_ANSWER, self._kafka)


def _ready(kafka: Kafka, settings: Settings, topic: str) -> int:
    """Create the topic, or check the one that exists; returns its partitions."""
    admin = kafka.admin()
    existing = describe(admin, [topic]).get(topic)
    plan = TopicPlan(topic, existing.partitions if existing else PARTITIONS, _CONFIG, owned=False)
    ensure_topics(admin, [plan], settings.replication_factor, settings.min_insync_replicas)
    seen = topic_configs(admin, [topic])[topic]
    for key, needed in (("cleanup.policy", "delete"), ("retention.bytes", "-1")):
        if seen[key] != needed:
            raise ConfigurationError(
                f"topic {topic!r} has {key}={seen[key]} and would lose records: it needs {needed}. "
                "Correct it with kafka-configs, or delete the topic",
                topic=topic,
                key=key,
                seen=seen[key],
                needed=needed,
            )
    return plan.partitions


@stamina.retry(on=Unavailable, timeout=30)  # a new topic has no leader at first
def _have(kafka: Kafka, topic: str, partitions: int) -> list[int]:
    """How many records each partition holds."""
    at = [(topic, p) for p in range(partitions)]
    first, end = starts(kafka.admin(), at), ends(kafka.admin(), at)
    cut = {p: first[topic, p] for p in range(partitions) if first[topic, p]}
    if cut:
        raise ConfigurationError(
            f"topic {topic!r} has lost its first records (log starts: {cut}): delete it and load "
            "again",
            topic=topic,
        )
    return [end[topic, p] for p in range(partitions)]


def _values(kafka: Kafka, topic: str, partition: int, n: int) -> Iterator[Record]:
    for messages in read(kafka, topic, partition, 0, n):
        for message in messages:
            value = message.value()
            yield Record(message.key(), b"" if value is None else value, message.timestamp()[1])


def _compare(topic: str, partition: int, index: int, seen: Record | None, record: Record) -> None:
    if seen != record:
        raise ConfigurationError(
            f"topic {topic!r} holds other records than this loader publishes: {topic}/{partition} "
            f"offset {index} is {seen}, not {record}. Delete the topic, or give the loader another",
            topic=topic,
            partition=partition,
            offset=index,
        )


def _check_ends(kafka: Kafka, topic: str, index: list[int]) -> None:
    end = ends(kafka.admin(), [(topic, p) for p in range(len(index))])
    seen = [end[topic, p] for p in range(len(index))]
    if seen != index:
        raise ConfigurationError(
            f"topic {topic!r} ends at {seen} where this loader makes it end at {index}: something "
            "else writes to it. Stop that, delete the topic and load again",
            topic=topic,
        )
