"""Names of an application's topics and the configuration that each needs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from state_lib.errors import ConfigurationError
from state_lib.specs import DAY_MS, StoreSpec, Topology

DELETE_RETENTION_MS = 7 * DAY_MS
"""How long tombstones are kept: the age up to which a directory or snapshot may be reused."""
RETENTION_MARGIN_MS = DAY_MS
"""Added to a window store's retention, as Kafka Streams' additional retention."""
_FOREVER_FUTURE_MS = "9223372036854775807"


@dataclass(frozen=True)
class TopicPlan:
    """One topic that an application needs.

    Attributes:
        name: of the topic.
        partitions: how many it must have.
        config: what a new one is created with.
        store: the store it protects, if it is a changelog.
        owned: False for an output, which the user may have created.
        dated: of an output; see `state_lib.specs.OutputSpec`.
    """

    name: str
    partitions: int
    config: Mapping[str, str] = field(default_factory=dict)
    store: StoreSpec | None = None
    owned: bool = True
    dated: bool = False


def changelog_topic(app: str, store: str) -> str:
    """``<app>-<store>-changelog``, Kafka Streams' name."""
    return f"{app}-{store}-changelog"


def commits_topic(app: str) -> str:
    """Markers: partition *p* is written only by task *p*."""
    return f"{app}-commits"


def topology_topic(app: str) -> str:
    """Claims of drivers, each with the topology, and requests: see `state_lib.changelog.claims`."""
    return f"{app}-topology"


def driver_group(app: str) -> str:
    """The consumer group whose members are the living drivers; it never commits offsets."""
    return f"{app}-driver"


def progress_topic(app: str) -> str:
    """Recorded batches: bounds, stream time, now."""
    return f"{app}-progress"


def dead_letter_queue(app: str) -> str:
    """The topic of unusable records, unchanged, with the reason in headers."""
    return f"{app}-dead-letters"


def transactional_id(app: str, partition: int) -> str:
    """Of the writer of a task's owner: a new owner fences the one before by it."""
    return f"{app}-{partition}"


def changelog_config(spec: StoreSpec) -> dict[str, str]:
    """Configuration of a store's changelog; see docs/architecture.md."""
    config = _base("compact")
    config["delete.retention.ms"] = str(DELETE_RETENTION_MS)
    if spec.is_window:
        config["cleanup.policy"] = "compact,delete"
        config["retention.ms"] = str(spec.retention_ms + RETENTION_MARGIN_MS)
    return config


def plan_topics(topology: Topology, source_retention_ms: int = -1) -> list[TopicPlan]:
    """Every topic of the application.

    Args:
        topology: of the application.
        source_retention_ms: the longest retention of its sources.

    Raises:
        ConfigurationError: two names collide (app ``a`` store ``b-c``, app ``a-b`` store ``c``
            give the same topic), or an output is one of the sources.
    """
    app, n = topology.app, topology.partitions
    plans = [
        TopicPlan(changelog_topic(app, s.name), n, changelog_config(s), store=s)
        for s in topology.stores
    ]
    plans.append(TopicPlan(commits_topic(app), n, _base("compact")))
    plans.append(TopicPlan(topology_topic(app), 1, _base("compact")))
    progress = _base("delete") | {"retention.ms": str(source_retention_ms)}
    plans.append(TopicPlan(progress_topic(app), 1, progress))
    plans.append(TopicPlan(dead_letter_queue(app), n, _base("delete") | {"retention.ms": "-1"}))
    plans += [
        TopicPlan(
            o.topic,
            n,
            _base("delete") | {"retention.ms": "-1"},
            owned=False,
            dated=o.dated,
        )
        for o in topology.outputs
    ]
    names = [p.name for p in plans]
    clash = {x for x in names if names.count(x) > 1} | (set(names) & set(topology.sources))
    if clash:
        raise ConfigurationError(
            f"application {app!r} would use the topics {sorted(clash)} twice: rename a store, an "
            "output or the application",
            topics=sorted(clash),
        )
    return plans


def _base(policy: str) -> dict[str, str]:
    return {
        "cleanup.policy": policy,
        "retention.bytes": "-1",
        "message.timestamp.type": "CreateTime",
        "message.timestamp.before.max.ms": _FOREVER_FUTURE_MS,
        "message.timestamp.after.max.ms": _FOREVER_FUTURE_MS,
    }
