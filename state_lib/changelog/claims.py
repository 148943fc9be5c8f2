"""The records of ``<app>-topology``: claims of drivers, each with the topology that it declared.

The key of a claim is the application's id. Records with other keys are messages between processes:
they are no claims and change no epoch. Those keys begin with a colon, which no application's id
may; compaction keeps the newest of each.

A reset or a deletion writes a *notice*: a claim without a driver. It has an epoch of its own, so it
supersedes a driver that still runs.
"""

from __future__ import annotations

import getpass
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import orjson
from confluent_kafka import KafkaError, KafkaException, Message, Producer

from state_lib.changelog.reader import read_last
from state_lib.changelog.topics import topology_topic
from state_lib.errors import ConfigurationError, NotFound
from state_lib.kafka import ADMIN_TIMEOUT_S, NO_ANSWER, Kafka, describe, unavailable
from state_lib.protocol.addresses import HostAddress, parse_hosts
from state_lib.specs import Topology
from state_lib.times import iso


@dataclass(frozen=True)
class Notice:
    """That an application is being reset or deleted, or was reset; ``by`` is for people."""

    kind: Literal["reset", "delete"]
    done: bool
    at: int
    by: str


STOP = b":stop"
"""A request: drivers that started before it stop at a batch's edge."""
HANDOVER = b":handover"
"""As `STOP`, but supervisors start a new driver afterwards. Has a key of its own: both are kept."""
MAKE_WAY = b":make-way"
"""A request to named drivers: end at a batch's edge, as a driver with other code takes over."""
STREAMING = b":streaming"
"""A driver has aligned all tasks and streams; has the address of its Spark UI."""
ENDED = b":ended"
"""Prefix of the keys of drivers' reasons for their end: see `state_lib.drivers.last_words`."""
RESTORE = b":restore"
"""A restore to the past: its offset is the epoch under which tasks go back. It is no claim: the
topology of the last driver stays, and supervisors do not take it for another driver."""
PASSED = b":passed"
"""Filler of a topology topic that was created again, so that new claims get higher offsets."""


@dataclass(frozen=True)
class Claim:
    """One claim. ``epoch`` is its record's offset, ``by`` describes the driver."""

    epoch: int
    topology: Topology

    @property
    def by(self) -> Mapping[str, Any]:
        """Its writer, as `state_lib.driver.claims.write_claim` describes it; may be empty."""
        return self.topology.extra

    @property
    def hosts(self) -> tuple[HostAddress, ...]:
        """The hosts that its driver places tasks on; none in a claim of an older Holdfast.

        Raises:
            ConfigurationError: they cannot be read.
        """
        return parse_hosts(",".join(self.by.get("hosts", ())))

    @property
    def notice(self) -> Notice | None:
        """The notice, if this is no driver's claim."""
        body = self.topology.extra.get("notice")
        return None if body is None else Notice(**body)

    @classmethod
    def of(cls, record: Message) -> Claim:
        """From a record of the topic.

        Raises:
            ConfigurationError: it is no claim, or one of a newer Holdfast; names its offset.
        """
        offset = record.offset() or 0
        try:
            return cls(offset, Topology.from_json(orjson.loads(record.value() or b"")))
        except (ConfigurationError, orjson.JSONDecodeError) as error:
            raise ConfigurationError(
                f"the claim at offset {offset} of topic {record.topic()!r} cannot be read: {error}."
                " If a newer Holdfast wrote it, install that version here",
                topic=record.topic(),
                offset=offset,
            ) from error


def candidates(
    kafka: Kafka, suffix: str = topology_topic(""), partitions: int | None = 1
) -> list[str]:
    """Ids of applications by the names and forms of topics, sorted; some may be no application.

    Args:
        kafka: connection.
        suffix: of the topics' names.
        partitions: how many the topics have; None: any number.

    Raises:
        Unavailable: Kafka cannot be asked.
    """
    admin = kafka.admin()
    try:
        topics = admin.list_topics(timeout=ADMIN_TIMEOUT_S).topics
    except KafkaException as error:
        raise unavailable("list topics", error, admin) from error
    return [
        name.removesuffix(suffix)
        for name, topic in sorted(topics.items())
        if name.endswith(suffix) and name != suffix
        if partitions in (None, len(topic.partitions))
    ]


def newest_claim(kafka: Kafka, app: str) -> Claim | None:
    """The newest claim of an application; None if it was never claimed."""
    topic = topology_topic(app)
    if not describe(kafka.admin(), [topic]):
        return None
    record = read_last(kafka, topic, 0, key=app.encode())
    return None if record is None or record.value() is None else Claim.of(record)


def topology_of(kafka: Kafka, app: str) -> Topology:
    """The topology as the last driver declared it.

    Raises:
        NotFound: no driver of this application ever started, or none since it was reset.
    """
    claim = newest_claim(kafka, app)
    if claim is None:
        raise NotFound(
            f"application {app!r} has never run on these brokers: there is no claim in topic "
            f"{topology_topic(app)!r}. Start its job first, or look at HOLDFAST_BOOTSTRAP_SERVERS. "
            f"(If that topic was deleted: 'holdfast repair topology {app}')",
            app=app,
        )
    if claim.notice is not None:
        raise gone(app, claim.notice)
    return claim.topology


def gone(app: str, notice: Notice) -> NotFound:
    """The error for requests to an application after its notice."""
    if notice.done:
        return NotFound(
            f"application {app!r} was reset at {iso(notice.at)} by {notice.by}, and its job has "
            "not been started since: start it",
            app=app,
        )
    return NotFound(
        f"a {notice.kind} of application {app!r} was begun at {iso(notice.at)} by {notice.by} and "
        f"has not ended: run 'holdfast app {notice.kind} {app}' again",
        app=app,
    )


def speaker(kafka: Kafka, timeout_s: float = 60.0) -> Producer:
    """A producer for `tell`; made half a second ahead, it is quick: see `Kafka.producer`."""
    return kafka.producer(**_within(timeout_s))


def _within(timeout_s: float) -> dict[str, Any]:
    return {"linger.ms": 0, "message.timeout.ms": int(timeout_s * 1000)}


def tell(  # noqa: PLR0913 - all but four are for few
    kafka: Kafka,
    app: str,
    key: bytes,
    body: Mapping[str, Any] | None,
    timeout_s: float = 60.0,
    times: int = 1,
    *,
    producer: Producer | None = None,
) -> int:
    """Write a record to an application's topology topic, once or several times.

    Returns its offset, or that of the last.

    Args:
        kafka: connection.
        app: whose topic.
        key: of the record.
        body: its value, written as JSON; None: a null.
        timeout_s: how long brokers may take.
        times: how many records.
        producer: from `speaker`, for callers that cannot wait for a new one.

    Raises:
        Unavailable: the brokers did not take it.
        KafkaRefused: this principal must not write there.
    """
    outcome: list[tuple[KafkaError | None, Message]] = []
    producer = producer or kafka.producer(topology_topic(app), **_within(timeout_s))
    for _ in range(times):
        producer.produce(
            topology_topic(app),
            None if body is None else orjson.dumps(body),
            key=key,
            partition=0,
            on_delivery=lambda error, message: outcome.append((error, message)),
        )
    producer.flush(timeout_s + 1)
    failures = [error for error, _ in outcome if error is not None]
    if failures or len(outcome) < times:
        failure = failures[0] if failures else NO_ANSWER
        raise unavailable(f"write to topic {topology_topic(app)!r}", failure, kafka)
    return max(int(message.offset() or 0) for _, message in outcome)


def user_name() -> str:
    """Who runs this process."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container's user id without a name
        return str(os.getuid())
