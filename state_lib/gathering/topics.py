"""What the brokers say of an application's topics."""

from __future__ import annotations

from collections.abc import Iterable

from state_lib.changelog.admin import topic_configs
from state_lib.changelog.topics import changelog_topic, commits_topic, plan_topics
from state_lib.checks.facts import TopicSeen
from state_lib.checks.told import told
from state_lib.kafka import Kafka, TopicFacts, describe, ends, starts
from state_lib.specs import Topology


def topics_seen(kafka: Kafka, topology: Topology) -> dict[str, TopicSeen]:
    """Its own topics, sources and outputs, as far as they exist; bounds of changelogs and markers.

    Raises:
        Unavailable: Kafka is away.
        KafkaRefused: this principal may not look.
    """
    admin = kafka.admin()
    planned = {plan.name: plan.config for plan in plan_topics(topology)}
    names = {*topology.sources, *planned}
    found = describe(admin, names)
    configs = {t: told(c, planned.get(t, {})) for t, c in topic_configs(admin, found).items()}
    logs = [commits_topic(topology.app)]
    logs += [changelog_topic(topology.app, s.name) for s in topology.stores]
    first, end = _bounds(kafka, [found[t] for t in logs if t in found])
    return {
        name: TopicSeen(
            facts.id,
            configs[name][0],
            facts.replicas,
            facts.in_sync,
            facts.leaderless,
            first.get(name, ()),
            end.get(name, ()),
            configs[name][1],
        )
        for name, facts in found.items()
    }


def _bounds(
    kafka: Kafka, logs: Iterable[TopicFacts]
) -> tuple[dict[str, tuple[int, ...]], dict[str, tuple[int, ...]]]:
    """Log starts and last stable offsets; of a partition without a leader nobody can be asked."""
    whole = {f.name: range(f.partitions) for f in logs if not f.leaderless}
    every = [(name, p) for name, partitions in whole.items() for p in partitions]
    admin = kafka.admin()
    first, end = starts(admin, every), ends(admin, every)
    return (
        {name: tuple(first[name, p] for p in parts) for name, parts in whole.items()},
        {name: tuple(end[name, p] for p in parts) for name, parts in whole.items()},
    )
