"""Kafka clients, configured in one place, and the few admin questions that everything asks."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from confluent_kafka import (
    Consumer,
    IsolationLevel,
    KafkaException,
    Producer,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, ListOffsetsResultInfo, OffsetSpec

from state_lib.errors import MissingTopic, Unavailable

if TYPE_CHECKING:
    from state_lib.config import Settings

ADMIN_TIMEOUT_S = 15.0
_STALE_LEADER = (
    "FENCED_LEADER_EPOCH",
    "UNKNOWN_LEADER_EPOCH",
    "_NOENT",
    "NOT_LEADER_FOR_PARTITION",
)
_QUIET = {"log_level": 2}  # librdkafka's own lines repeat every second while a broker is away
Partition = tuple[str, int]


@dataclass(frozen=True)
class Kafka:
    """Where the brokers are and how to log in: librdkafka properties shared by all clients."""

    properties: Mapping[str, Any]

    @classmethod
    def of(cls, settings: Settings) -> Kafka:
        """The brokers that the settings name."""
        return cls({"bootstrap.servers": settings.bootstrap_servers, **_QUIET})

    def admin(self) -> AdminClient:
        """The admin client of this connection; safe to share between threads."""
        return self._admin

    @cached_property
    def _admin(self) -> AdminClient:
        return AdminClient(dict(self.properties))

    def producer(self, **extra: Any) -> Producer:
        """A producer; ``extra`` are librdkafka properties with dots."""
        return Producer({"acks": "all", "enable.idempotence": True, **self.properties, **extra})

    def reader(self, **extra: Any) -> Consumer:
        """A consumer that is assigned by hand, never commits, and sees committed records only."""
        return Consumer(
            {
                "group.id": "holdfast-unused",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "auto.offset.reset": "error",
                "isolation.level": "read_committed",
                "fetch.message.max.bytes": 8 << 20,
                "queued.max.messages.kbytes": 32 << 10,
                "queued.min.messages": 50_000,
                "fetch.wait.max.ms": 50,
                **self.properties,
                **extra,
            }
        )


@dataclass(frozen=True)
class TopicFacts:
    """What the broker says of one topic."""

    name: str
    id: str
    partitions: int
    replication: int


def describe(admin: AdminClient, names: Iterable[str]) -> dict[str, TopicFacts]:
    """Facts of those topics that exist; the others are absent from the result."""
    wanted = sorted(set(names))
    if not wanted:
        return {}
    found: dict[str, TopicFacts] = {}
    futures = admin.describe_topics(TopicCollection(wanted), request_timeout=ADMIN_TIMEOUT_S)
    for name, future in futures.items():
        try:
            topic = future.result()
        except KafkaException as error:
            if error.args[0].name() == "UNKNOWN_TOPIC_OR_PART":
                continue
            raise unavailable("describe topics", error) from error
        if not topic.partitions:
            continue
        found[name] = TopicFacts(
            name=name,
            id=str(topic.topic_id),
            partitions=len(topic.partitions),
            replication=len(topic.partitions[0].replicas),
        )
    return found


def require(admin: AdminClient, names: Iterable[str]) -> dict[str, TopicFacts]:
    """As `describe`, but a missing topic is an error that names it."""
    names = list(names)
    found = describe(admin, names)
    for name in names:
        if name not in found:
            raise MissingTopic(
                f"topic {name!r} does not exist: create it, or correct its name in the job",
                topic=name,
            )
    return found


def offsets(
    admin: AdminClient, partitions: Iterable[Partition], spec: OffsetSpec
) -> dict[Partition, int]:
    """Offsets of partitions by spec, as a committed reader sees them (the last stable offset).

    After a broker's restart librdkafka goes on with the leaders that it remembers and is refused
    for ever (FENCED_LEADER_EPOCH) [tried]; asking for the topics' metadata makes it look again.
    """
    wanted = list(partitions)
    try:
        return _offsets(admin, wanted, spec)
    except Unavailable as error:
        if error.details.get("kafka_error") not in _STALE_LEADER:
            raise
    for topic in {t for t, _ in wanted}:
        with contextlib.suppress(KafkaException):
            admin.list_topics(topic, timeout=ADMIN_TIMEOUT_S)
    return _offsets(admin, wanted, spec)


def _offsets(
    admin: AdminClient, partitions: Iterable[Partition], spec: OffsetSpec
) -> dict[Partition, int]:
    request = {TopicPartition(t, p): spec for t, p in partitions}
    if not request:
        return {}
    futures = admin.list_offsets(
        request,
        isolation_level=IsolationLevel.READ_COMMITTED,
        request_timeout=ADMIN_TIMEOUT_S,
    )
    out: dict[Partition, int] = {}
    for tp, future in futures.items():
        try:
            info: ListOffsetsResultInfo = future.result()
        except KafkaException as error:
            raise unavailable(f"list offsets of {tp.topic}/{tp.partition}", error) from error
        out[tp.topic, tp.partition] = info.offset
    return out


def ends(admin: AdminClient, partitions: Iterable[Partition]) -> dict[Partition, int]:
    """Last stable offset of each partition."""
    return offsets(admin, partitions, OffsetSpec.latest())  # type: ignore[no-untyped-call]


def starts(admin: AdminClient, partitions: Iterable[Partition]) -> dict[Partition, int]:
    """Log start offset of each partition."""
    return offsets(admin, partitions, OffsetSpec.earliest())  # type: ignore[no-untyped-call]


def unavailable(what: str, error: KafkaException) -> Unavailable:
    """Kafka could not be asked: worth a retry."""
    return Unavailable(
        f"Kafka did not {what}: {error.args[0].str()}; it is retried. Look at the broker's log if "
        "this goes on",
        kafka_error=error.args[0].name(),
    )
