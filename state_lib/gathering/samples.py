"""Reads changelogs at some places, so that compaction is judged by what is there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pyarrow as pa
import xxhash
from confluent_kafka import Consumer, Message, TopicPartition

from state_lib.changelog.reader import drain
from state_lib.changelog.topics import changelog_topic
from state_lib.checks.compaction import RECORD_BYTES
from state_lib.checks.facts import HostSeen, LogSample, TopicSeen
from state_lib.errors import HoldfastError
from state_lib.kafka import Kafka
from state_lib.specs import Topology

MOST = 16
"""Partitions of one changelog that are read at once; the others have their turn later."""
TURN_MS = 900_000
RECORDS = 20_000
"""Offsets of one partition that are read. Of K keys that are written at random, so many records
hold about 2e8 / K pairs of the same key: enough to see repeats among ten million keys."""
_PLACES, _AT_ONCE, _STALL_S = 8, 4, 10.0
_PACK_BYTES = 1 << 20


def samples(
    kafka: Kafka,
    topology: Topology,
    topics: Mapping[str, TopicSeen],
    hosts: Sequence[HostSeen],
    now: int,
) -> dict[str, tuple[LogSample, ...]]:
    """Of every changelog that exists; all of its partitions, or `MOST` of them by turns.

    What cannot be read is a finding, no error.
    """
    live = {
        (changelog_topic(topology.app, name), task.partition): store.entries
        for host in hosts
        for task in host.tasks
        if task.state == "open"
        for name, store in task.stores.items()
    }
    found: dict[str, tuple[LogSample, ...]] = {}
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        for spec in topology.stores:
            topic = changelog_topic(topology.app, spec.name)
            seen = topics.get(topic)
            if seen is None or not seen.ends:
                continue
            jobs = [
                pool.submit(sample_log, kafka, topic, p, seen.starts[p], seen.ends[p])
                for p in turn(len(seen.ends), now)
            ]
            done = [job.result() for job in jobs]
            found[topic] = tuple(replace(s, live=live.get((topic, s.partition), -1)) for s in done)
    return found


def turn(partitions: int, now: int, most: int = MOST) -> list[int]:
    """Whose turn it is: each of many partitions comes once in ``partitions / most`` turns."""
    if partitions <= most:
        return list(range(partitions))
    first = now // TURN_MS * most
    return sorted({(first + i) % partitions for i in range(most)})


def places(start: int, end: int, records: int = RECORDS) -> list[tuple[int, int]]:
    """Ranges of offsets: the whole log, or places of it from its start to its end."""
    if end - start <= records:
        return [(start, end)] if end > start else []
    length = records // _PLACES
    step = (end - start - length) / (_PLACES - 1)
    return [(at, at + length) for i in range(_PLACES) for at in [start + round(i * step)]]


def sample_log(
    kafka: Kafka, topic: str, partition: int, start: int, end: int, records: int = RECORDS
) -> LogSample:
    """One partition, read at `places`; an error is part of the sample."""
    counted = _Count(LogSample(partition, start, end))
    consumer = kafka.reader(**{"auto.offset.reset": "earliest"})  # brokers may delete windows
    try:
        for first, last in places(start, end, records):
            counted.place(first, last)
            for messages in _read(kafka, consumer, (topic, partition), first, last):
                counted.count(messages)
    except HoldfastError as error:
        return replace(counted.sample, error=error.message)
    finally:
        consumer.close()
    return counted.sample


def _read(
    kafka: Kafka, consumer: Consumer, at: tuple[str, int], first: int, last: int
) -> list[list[Message]]:
    consumer.assign([TopicPartition(*at, first)])
    return list(drain(kafka, consumer, first, last, last - first, _STALL_S))


def packing(raw: bytes) -> float:
    """How many times smaller lz4 makes it."""
    return len(raw) / len(pa.compress(raw, codec="lz4", asbytes=True))


class _Count:
    """Counts keys and their repeats, by hash."""

    def __init__(self, empty: LogSample) -> None:
        self._empty, self._seen = empty, set[int]()
        self._offsets = self._records = self._deletes = self._bytes = 0
        self._first_repeat, self._before = -1, (0, 0)
        self._behind = 0
        self._packed, self._raw = 1.0, bytearray()

    def place(self, first: int, last: int) -> None:
        """Another one begins."""
        self._behind = self._offsets - first  # plus an offset: number of offsets before it
        self._offsets += last - first
        self._pack()

    def _pack(self) -> None:
        """Compress what was kept of a place, as a host's producer would."""
        if self._raw:
            self._packed = max(self._packed, packing(bytes(self._raw)))
            self._raw.clear()

    def count(self, messages: Sequence[Message]) -> None:
        """In the order of the log."""
        for message in messages:
            key, value = message.key() or b"", message.value()
            self._records += 1
            self._deletes += value is None
            self._bytes += len(key) + len(value or b"")
            if len(self._raw) < _PACK_BYTES:
                self._raw += key + (value or b"") + bytes(RECORD_BYTES)
            hashed = xxhash.xxh3_64_intdigest(key)
            if hashed in self._seen and self._first_repeat < 0:
                at = self._first_repeat = message.offset() or 0
                self._before = at + self._behind, self._records - 1
            self._seen.add(hashed)

    @property
    def sample(self) -> LogSample:
        """What was counted so far."""
        self._pack()
        return replace(
            self._empty,
            offsets=self._offsets,
            records=self._records,
            repeats=self._records - len(self._seen),
            deletes=self._deletes,
            first_repeat=self._first_repeat,
            before_offsets=self._before[0],
            before_records=self._before[1],
            record_bytes=self._bytes / max(1, self._records),
            packed=self._packed,
        )
