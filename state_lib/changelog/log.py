"""The commit log of a task: its commits are written to it, and its state is restored from it.

`CommitLog` is all that a task, its opening and its restore need of a log. There are two: Kafka
(here), and one in memory for tests of pipelines (`state_lib.changelog.memory`). Both share the code
that decides on commits, which lies above them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from confluent_kafka import Message

from state_lib.changelog.admin import set_topic_config, topic_configs
from state_lib.changelog.limits import size_limits
from state_lib.changelog.reader import BATCH, read, read_last
from state_lib.changelog.sample import Sample, sample
from state_lib.changelog.topics import DELETE_RETENTION_MS
from state_lib.changelog.writer import MakeMarker, Records, TransactionalWriter
from state_lib.kafka import Kafka, ends, require, starts


@dataclass(frozen=True)
class LogRange:
    """Facts of one changelog partition: the topic's id, log start and last stable offset.

    ``delete_retention_ms`` is read from the topic: Kafka Streams' topics keep tombstones for a day.
    """

    topic_id: str
    start: int
    end: int
    delete_retention_ms: int = DELETE_RETENTION_MS


class Writer(Protocol):
    """Writes the commits of one task. Opening one fences all earlier writers of its id."""

    def open(self) -> None:
        """Fence earlier writers, and end transactions that they left open.

        Raises:
            Unavailable: the log is away.
        """

    def limit(self, topic: str) -> int:
        """The greatest key plus value (bytes) that a topic takes."""

    def write(
        self, records: Sequence[Records], marker: tuple[str, bytes], make_marker: MakeMarker
    ) -> bytes:
        """Write records and a marker, all or nothing; see `TransactionalWriter.write`."""

    def write_part(self, records: Records) -> int:
        """Write part of a changelog, which counts once a marker covers it."""

    def close(self) -> None:
        """Drop buffered records; fences nobody."""


class CommitLog(Protocol):
    """Topics in partitions, to which records are committed atomically.

    Offsets are not dense: the end of a transaction takes one as well.
    """

    def require(self, topics: Iterable[str]) -> None:
        """Raise MissingTopic unless all of them exist."""

    def writer(self, writer_id: str, partition: int, marker: str, topics: Sequence[str]) -> Writer:
        """A writer to one partition number. It fences nobody before it is opened.

        Args:
            writer_id: opening another writer of this id fences it.
            partition: of every topic.
            marker: the topic of markers.
            topics: all that it will write to.

        Raises:
            Unavailable: the log is away.
        """

    def ranges(self, topics: Sequence[str], partition: int) -> dict[str, LogRange]:
        """Facts of one partition of some topics, as readers of committed records see them.

        Raises:
            MissingTopic: naming it.
            Unavailable: the log is away.
        """

    def ends(self, topics: Sequence[str], partition: int) -> dict[str, int]:
        """`LogRange.end` of each."""

    def read(
        self, topic: str, partition: int, start: int, end: int, batch: int = BATCH
    ) -> Iterator[list[Message]]:
        """Committed records with ``start <= offset < end``, in order; see `reader.read`."""

    def last(self, topic: str, partition: int) -> Message | None:
        """The last committed record of a partition; None if there is none."""

    def sample(self, topic: str, partition: int, start: int, end: int) -> Sample:
        """An estimate of how large the records of a range are."""

    def retention_ms(self, topic: str) -> int:
        """Age (ms, by its timestamp) from which a topic may delete a record; -1: never."""

    def keep_forever(self, topic: str) -> None:
        """Let a topic delete no record for its age from now on."""


class KafkaLog:
    """Topics of Kafka; a commit is one transaction."""

    def __init__(self, kafka: Kafka) -> None:
        self.kafka = kafka

    def require(self, topics: Iterable[str]) -> None:
        """See `CommitLog`."""
        require(self.kafka.admin(), topics)

    def writer(self, writer_id: str, partition: int, marker: str, topics: Sequence[str]) -> Writer:
        """See `CommitLog`."""
        limits = size_limits(self.kafka.admin(), topics)
        return TransactionalWriter(self.kafka, writer_id, partition, topic=marker, limits=limits)

    def ranges(self, topics: Sequence[str], partition: int) -> dict[str, LogRange]:
        """See `CommitLog`."""
        admin, places = self.kafka.admin(), [(t, partition) for t in topics]
        facts, configs = require(admin, topics), topic_configs(admin, topics)
        first, end = starts(admin, places), ends(admin, places)
        return {
            t: LogRange(
                facts[t].id,
                first[t, partition],
                end[t, partition],
                int(configs[t]["delete.retention.ms"]),
            )
            for t in topics
        }

    def ends(self, topics: Sequence[str], partition: int) -> dict[str, int]:
        """See `CommitLog`."""
        found = ends(self.kafka.admin(), [(t, partition) for t in topics])
        return {topic: end for (topic, _), end in found.items()}

    def read(
        self, topic: str, partition: int, start: int, end: int, batch: int = BATCH
    ) -> Iterator[list[Message]]:
        """See `CommitLog`."""
        return read(self.kafka, topic, partition, start, end, batch)

    def last(self, topic: str, partition: int) -> Message | None:
        """See `CommitLog`."""
        return read_last(self.kafka, topic, partition)

    def sample(self, topic: str, partition: int, start: int, end: int) -> Sample:
        """See `CommitLog`."""
        return sample(self.kafka, topic, partition, start, end)

    def retention_ms(self, topic: str) -> int:
        """See `CommitLog`."""
        return int(topic_configs(self.kafka.admin(), [topic])[topic]["retention.ms"])

    def keep_forever(self, topic: str) -> None:
        """See `CommitLog`."""
        set_topic_config(self.kafka.admin(), topic, "retention.ms", "-1")
