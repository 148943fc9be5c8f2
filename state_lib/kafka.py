"""Kafka clients, configured in one place, and the few admin questions that everything asks."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

from confluent_kafka import (
    Consumer,
    IsolationLevel,
    KafkaError,
    KafkaException,
    Producer,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import AclOperation, AdminClient, ListOffsetsResultInfo, OffsetSpec

from state_lib.errors import ConfigurationError, HoldfastError, MissingTopic, Unavailable
from state_lib.kafka_admin import Admin
from state_lib.kafka_door import Door
from state_lib.kafka_login import KafkaLogin

if TYPE_CHECKING:
    from state_lib.config import Settings

ADMIN_TIMEOUT_S = 15.0
_LOOK_S = 0.25
_CONNECT_S = 1.0
_LEADER_S = 5.0
"""How long leaders are looked for: a broker that starts has none for a moment."""
_STALE_LEADER = (
    "LEADER_NOT_AVAILABLE",
    "FENCED_LEADER_EPOCH",
    "UNKNOWN_LEADER_EPOCH",
    "_NOENT",
    "NOT_LEADER_FOR_PARTITION",
)
_SOON = {"reconnect.backoff.ms": 10}
"""At first; it doubles up to 10 s. Every client connects twice: by the address that it was given,
then by the broker's own. With the default it begins 40 ms later [tried]."""
_QUIET = {"log_level": 2}  # librdkafka's own lines repeat every second while a broker is away
NO_ANSWER = KafkaError(KafkaError._TIMED_OUT, "no answer")  # noqa: SLF001 - the public code
"""Of a producer that was flushed for long enough."""
_NO_OFFSET = KafkaError(KafkaError.LEADER_NOT_AVAILABLE, "the answer has no offset in it")
"""librdkafka 2.16 says -1001 and no error when the broker went away while it was asked [tried]."""
NO_GROUP = KafkaError.GROUP_AUTHORIZATION_FAILED
"""Of a reader: librdkafka looks for the coordinator of its group, which it does not use."""
Partition = tuple[str, int]
T = TypeVar("T")


@dataclass(frozen=True)
class Kafka:
    """Where the brokers are and how to log in: librdkafka properties shared by all clients."""

    properties: Mapping[str, Any] = field(repr=False)  # the password is among them
    login: KafkaLogin = field(default_factory=KafkaLogin)

    @classmethod
    def of(cls, settings: Settings) -> Kafka:
        """The brokers that the settings name.

        Raises:
            ConfigurationError: the password, the authorities' certificates or the file of a
                property cannot be read.
        """
        from state_lib.settings.properties import resolved  # noqa: PLC0415 - workers need none

        login = settings.kafka_login()
        servers = {"bootstrap.servers": settings.bootstrap_servers}
        given = resolved(settings.kafka_properties, "kafka_properties")
        return cls({**servers, **login.librdkafka(), **_QUIET, **given}, login)

    @cached_property
    def door(self) -> Door:
        """What the brokers said to any client of this connection."""
        return Door(str(self.properties["bootstrap.servers"]), self.login)

    def admin(self) -> Admin:
        """The admin client of this connection; safe to share between threads.

        One that nobody answers is replaced: ask for it again rather than keep it.
        """
        if self._admin.lost:
            vars(self).pop("_admin", None)  # other users keep their reference
        return self._admin

    @cached_property
    def _admin(self) -> Admin:
        return _made(lambda own: Admin(own, self.door), self.properties)

    def producer(self, topic: str | None = None, **extra: Any) -> Producer:
        """A producer, idempotent.

        A producer that is used before it is connected retries to get its id only half a second
        later: with a topic to write to it is connected first, if the brokers are there. Two answers
        are waited for, as the first one makes it connect anew, by the broker's own name [tried: one
        of four was too early with a single one].

        Args:
            topic: one that it will write to; None for one that need not be quick.
            extra: librdkafka properties with dots; those of the settings win.
        """
        made = _made(
            Producer,
            {
                "acks": "all",
                "enable.idempotence": True,
                "error_cb": self.door.hear,
                **extra,
                **self.properties,
            },
        )
        if topic is not None:
            with contextlib.suppress(KafkaException):
                for _ in range(2):
                    made.list_topics(topic, timeout=_CONNECT_S)
        return made

    def reader(self, **extra: Any) -> Consumer:
        """A consumer that is assigned by hand, never commits, and sees committed records only."""
        return _made(
            Consumer,
            {
                "group.id": "holdfast-unused",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "auto.offset.reset": "error",
                "isolation.level": "read_committed",
                # All that is fetched is unpacked, however little of it is read: 350 bytes of memory
                # and 0.2 us for each record, which lz4 may compress to 7 bytes [tried].
                "fetch.message.max.bytes": 1 << 20,
                "queued.max.messages.kbytes": 32 << 10,
                "queued.min.messages": 50_000,
                # Time until a full queue is checked again: the default, 1 s, starves readers.
                "fetch.queue.backoff.ms": 10,
                "fetch.wait.max.ms": 50,
                "error_cb": self.door.hear,
                **extra,
                **self.properties,
            },
        )


def _made(kind: Callable[[dict[str, Any]], T], properties: Mapping[str, Any]) -> T:
    """A client of librdkafka.

    Raises:
        ConfigurationError: it does not know a property, or not such a value.
    """
    try:
        return kind({**_SOON, **properties})
    except KafkaException as error:
        if error.args[0].code() != KafkaError._INVALID_ARG:  # noqa: SLF001 - the public code
            raise
        raise ConfigurationError(
            f"librdkafka does not take a property: {error.args[0].str()}. Correct it in [kafka] of "
            "holdfast.toml, or in HOLDFAST_KAFKA_PROPERTIES"
        ) from error


@dataclass(frozen=True)
class TopicFacts:
    """What the broker says of one topic.

    ``replicas`` and ``in_sync`` are counts by partition; ``leaderless`` are partitions.
    """

    name: str
    id: str
    partitions: int
    replication: int
    replicas: tuple[int, ...] = ()
    in_sync: tuple[int, ...] = ()
    leaderless: tuple[int, ...] = ()


def answer(admin: AdminClient, future: Future[T]) -> T:
    """The result of an admin call, sooner than by its time-out if nobody is let in.

    Raises:
        KafkaException: as the call's future does.
        KafkaRefused: the brokers refuse the log-in or have another certificate.
    """
    door = admin.door if isinstance(admin, Admin) else None
    while True:
        try:
            result = future.result(_LOOK_S)
        except TimeoutError:
            admin.poll(0)
            if door is not None and door.refused is not None:
                raise door.shut(door.refused) from None
        else:
            if isinstance(admin, Admin):
                admin.door.welcome()
                admin.answered()
            return result


def describe(
    admin: AdminClient, names: Iterable[str], timeout_s: float = ADMIN_TIMEOUT_S
) -> dict[str, TopicFacts]:
    """Facts of those topics that exist; the others are absent from the result."""
    wanted = sorted(set(names))
    if not wanted:
        return {}
    found: dict[str, TopicFacts] = {}
    futures = admin.describe_topics(TopicCollection(wanted), request_timeout=timeout_s)
    for name, future in futures.items():
        try:
            topic = answer(admin, future)
        except KafkaException as error:
            if error.args[0].name() == "UNKNOWN_TOPIC_OR_PART":
                continue
            raise unavailable(f"describe topic {name!r}", error, admin) from error
        if not topic.partitions:
            continue
        found[name] = TopicFacts(
            name=name,
            id=str(topic.topic_id),
            partitions=len(topic.partitions),
            replication=len(topic.partitions[0].replicas),
            replicas=tuple(len(p.replicas) for p in topic.partitions),
            in_sync=tuple(len(p.isr) for p in topic.partitions),
            leaderless=tuple(p.id for p in topic.partitions if p.leader is None),
        )
    return found


def not_writable(admin: AdminClient, names: Iterable[str]) -> list[str]:
    """Those topics that the authorizer does not let this principal write."""
    refused: list[str] = []
    futures = admin.describe_topics(
        TopicCollection(sorted(set(names))),
        include_authorized_operations=True,
        request_timeout=ADMIN_TIMEOUT_S,
    )
    for name, future in futures.items():
        try:
            allowed = answer(admin, future).authorized_operations
        except KafkaException:
            allowed = []  # permission to write implies to describe
        if allowed is not None and AclOperation.WRITE not in allowed:
            refused.append(name)
    return refused


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

    After a broker's restart librdkafka uses the leaders that it has cached, and is refused each
    time (FENCED_LEADER_EPOCH) [tried]; asking for the topics' metadata refreshes them.
    """
    wanted = list(partitions)
    deadline, wait = time.monotonic() + _LEADER_S, 0.02
    while True:
        try:
            return _offsets(admin, wanted, spec)
        except Unavailable as error:
            stale = error.details.get("kafka_error") in _STALE_LEADER
            if not stale or time.monotonic() > deadline:
                raise
        for topic in {t for t, _ in wanted}:
            with contextlib.suppress(KafkaException):
                seen = admin.list_topics(topic, timeout=ADMIN_TIMEOUT_S).topics[topic].error
                if seen is not None and seen.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
                    raise unavailable(f"describe topic {topic!r}", seen, admin)
        time.sleep(wait)
        wait = min(wait * 2, _LOOK_S)


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
        what = f"list offsets of {tp.topic}/{tp.partition}"
        try:
            info: ListOffsetsResultInfo = answer(admin, future)
        except KafkaException as error:
            raise unavailable(what, error, admin) from error
        if info.offset < 0:
            raise unavailable(what, _NO_OFFSET, admin)
        out[tp.topic, tp.partition] = info.offset
    return out


def ends(admin: AdminClient, partitions: Iterable[Partition]) -> dict[Partition, int]:
    """Last stable offset of each partition."""
    return offsets(admin, partitions, OffsetSpec.latest())  # type: ignore[no-untyped-call]


def starts(admin: AdminClient, partitions: Iterable[Partition]) -> dict[Partition, int]:
    """Log start offset of each partition."""
    return offsets(admin, partitions, OffsetSpec.earliest())  # type: ignore[no-untyped-call]


def unavailable(
    what: str, error: KafkaException | KafkaError, by: Kafka | AdminClient
) -> HoldfastError:
    """Why Kafka did not do what it was asked: see `Door.error`."""
    if isinstance(by, Kafka):
        return by.door.error(what, error)
    if isinstance(by, Admin):
        by.failed(error.args[0] if isinstance(error, KafkaException) else error)
        return by.door.error(what, error, by)
    return Door("the brokers", KafkaLogin()).error(what, error)
