"""Reads an application's topology from the claims in its topology topic."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from state_lib.changelog.claims import Claim, gone, newest_claim
from state_lib.changelog.reader import read
from state_lib.changelog.topics import topology_topic
from state_lib.errors import NotFound, Superseded
from state_lib.kafka import Kafka, describe, ends, require, starts
from state_lib.names import check_name
from state_lib.specs import Topology


def is_of_claim(
    kafka: Kafka, known: Topology | None, app: str, epoch: int, topic_id: str | None
) -> bool:
    """Whether the known topology is that of a claim: in a topic created again epochs recur.

    ``topic_id``: of the topic with the claim; None if its driver does not send it: Kafka is asked.
    """
    if known is None or known.extra.get("epoch") != epoch:
        return False
    if topic_id is None:
        topic = topology_topic(app)
        there = describe(kafka.admin(), [topic]).get(topic)
        return there is None or there.id == known.extra.get("topic_id")
    return topic_id == known.extra.get("topic_id")


def learn(
    kafka: Kafka,
    app: str,
    epoch: int | None,
    known: Iterable[str],
    topic_id: str | None = None,
) -> Topology:
    """What a claim declares.

    Args:
        kafka: connection.
        app: id of the application.
        epoch: of the claim; None: the last one.
        known: applications that the host knows, to name them.
        topic_id: of the topic that the claim was written to; None if that is not known.

    Raises:
        NotFound: no such application or claim.
        Superseded: a newer claim, or a notice, has taken its place.
        Unavailable: Kafka is away.
    """
    check_name("application", app)
    newest = newest_claim(kafka, app)
    if newest is None:
        ids = sorted(known)
        raise NotFound(f"no application {app!r} here; known: {ids}", app=app, known=ids)
    if newest.notice is not None:
        if epoch is None or not 0 <= epoch < newest.epoch:
            raise gone(app, newest.notice)
        raise Superseded(gone(app, newest.notice).message, epoch=epoch, current=newest.epoch)
    claim = newest if epoch in (None, newest.epoch) else _claim_at(kafka, app, epoch)
    if claim is None:
        topic = topology_topic(app)
        raise NotFound(f"{topic} holds no claim at offset {epoch}", topic=topic, epoch=epoch)
    found = declared_by(kafka, claim)
    if topic_id not in (None, found.extra["topic_id"]):
        topic = topology_topic(app)
        raise NotFound(
            f"the claim of epoch {epoch} was written to a topic {topic!r} that was deleted since "
            f"(its id was {topic_id}, is {found.extra['topic_id']}): its driver claims anew",
            topic=topic,
            epoch=epoch,
        )
    return found


def declared_by(kafka: Kafka, claim: Claim) -> Topology:
    """The topology of a claim; its ``extra`` says the epoch and the topic's id.

    Raises:
        MissingTopic: the topic was deleted meanwhile.
        Unavailable: Kafka is away.
    """
    topic = topology_topic(claim.topology.app)
    topic_id = require(kafka.admin(), [topic])[topic].id
    extra = {**claim.topology.extra, "epoch": claim.epoch, "topic_id": topic_id}
    return replace(claim.topology, extra=extra)


def _claim_at(kafka: Kafka, app: str, epoch: int | None) -> Claim | None:
    topic = topology_topic(app)
    at = (topic, 0)
    if epoch is None or not 0 <= epoch < ends(kafka.admin(), [at])[at]:
        return None
    first = starts(kafka.admin(), [at])[at]
    for records in read(kafka, topic, 0, max(epoch, first), epoch + 1):
        return Claim.of(records[0]) if records[0].key() == app.encode() else None
    raise Superseded(
        f"the claim of epoch {epoch} was compacted away: a newer driver has claimed {topic}",
        epoch=epoch,
    )
