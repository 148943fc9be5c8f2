"""What topics hold, estimated from the outside."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from state_lib.changelog.reader import read
from state_lib.changelog.topics import (
    commits_topic,
    dead_letter_queue,
    plan_topics,
    progress_topic,
    topology_topic,
)
from state_lib.kafka import Kafka, TopicFacts, describe, ends, starts
from state_lib.specs import Topology

SAMPLE = 200
"""Offsets at the end of a topic's longest partition from which the size of a record is taken."""
_RECORD_OVERHEAD = 12
"""Bytes that Kafka adds to a record in a batch of many, about."""


@dataclass(frozen=True)
class TopicSize:
    """One topic of an application.

    Attributes:
        topic: its name.
        role: what the application uses it for.
        partitions: how many.
        records: offsets from start to end, over all partitions: at most so many records.
        bytes: an estimate: ``records`` times the size of recent ones, before compression.
        forgotten: offsets before the log's start: what can never be read again.
    """

    topic: str
    role: str
    partitions: int
    records: int
    bytes: int
    forgotten: int


def owned_topics(topology: Topology) -> dict[str, str]:
    """Topics that the application owns, with their roles.

    Those by which its topics are known come last: the markers, then the topology topic.
    """
    app = topology.app
    roles = {
        commits_topic(app): "markers",
        progress_topic(app): "progress",
        dead_letter_queue(app): "dead letters",
        topology_topic(app): "topology",
    }
    owned = [p for p in plan_topics(topology) if p.owned]
    named = {
        p.name: f"changelog of {p.store.name}" if p.store else roles[p.name]
        for p in sorted(owned, key=lambda plan: plan.name)
    }
    last = (commits_topic(app), topology_topic(app))
    return {t: role for t, role in named.items() if t not in last} | {t: named[t] for t in last}


def foreign_topics(topology: Topology) -> dict[str, str]:
    """Topics that the application reads or writes but does not own, with their roles."""
    sources = dict.fromkeys(topology.sources, "source")
    return sources | {o.topic: f"output of {o.store}" for o in topology.outputs}


def sizes(kafka: Kafka, roles: Mapping[str, str]) -> list[TopicSize]:
    """Sizes of those topics that exist, in the order of ``roles``."""
    facts = describe(kafka.admin(), roles)
    with ThreadPoolExecutor(4) as pool:
        found = pool.map(lambda f: _size(kafka, f, roles[f.name]), facts.values())
        return sorted(found, key=lambda size: list(roles).index(size.topic))


def _size(kafka: Kafka, facts: TopicFacts, role: str) -> TopicSize:
    admin = kafka.admin()
    every = [(facts.name, p) for p in range(facts.partitions)]
    first, end = starts(admin, every), ends(admin, every)
    records = {at: end[at] - first[at] for at in every}
    longest = max(every, key=lambda at: records[at])
    count = size = 0
    start = max(first[longest], end[longest] - SAMPLE)
    for messages in read(kafka, *longest, start, end[longest]):
        count += len(messages)
        size += sum(len(m.key() or b"") + len(m.value() or b"") for m in messages)
    total = sum(records.values())
    mean = size / count + _RECORD_OVERHEAD if count else 0
    return TopicSize(
        facts.name, role, facts.partitions, total, round(total * mean), sum(first.values())
    )
