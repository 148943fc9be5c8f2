"""What each principal of an application needs of Kafka's authorizer, and nothing more.

Worked out from the same plan by which topics are created and written. READ and WRITE imply
DESCRIBE in Kafka, so it stands only where neither does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from shlex import quote
from typing import Literal, get_args

from state_lib.changelog.topics import (
    TopicPlan,
    commits_topic,
    dead_letter_queue,
    driver_group,
    plan_topics,
    progress_topic,
    topology_topic,
    transactional_id,
)
from state_lib.specs import Topology

Role = Literal["driver", "host", "loader", "auditor", "operator", "checker", "admin"]
Kind = Literal["topic", "group", "transactional-id"]
ROLES: tuple[Role, ...] = get_args(Role)
MEANING: dict[Role, str] = {
    "driver": "runs the job: Spark's driver and its executors",
    "host": "keeps the stores: every state host",
    "loader": "publishes to the source topics: holdfast load",
    "auditor": "reads everything that was committed: holdfast audit",
    "operator": "follows drivers, stops them, goes back in time: Airflow, restore --to",
    "checker": "judges and repairs settings: holdfast check, repair config, what-if",
    "admin": "resets and deletes: holdfast app",
}


@dataclass(frozen=True)
class Right:
    """Operations on one resource, by its literal name; Kafka's own words."""

    kind: Kind
    name: str
    operations: tuple[str, ...]


def rights(topology: Topology, role: Role) -> list[Right]:
    """What one role needs."""
    return _OF[role](topology)


def commands(servers: str, principal: str, needed: Iterable[Right]) -> list[str]:
    """The same as commands of ``kafka-acls``, one for all resources with the same operations."""
    groups: dict[tuple[Kind, tuple[str, ...]], list[str]] = {}
    for right in needed:
        groups.setdefault((right.kind, right.operations), []).append(right.name)
    begin = f"kafka-acls --bootstrap-server {quote(servers)} --command-config admin.properties"
    return [
        " \\\n  ".join(
            [
                f"{begin} --add --allow-principal {quote(principal)}",
                " ".join(f"--operation {_pascal(one)}" for one in operations),
                *(f"--{kind} {quote(name)}" for name in names),
            ]
        )
        for (kind, operations), names in groups.items()
    ]


def _pascal(operation: str) -> str:
    """As ``kafka-acls`` spells it: ``DescribeConfigs``."""
    return operation.title().replace("_", "")


def _loader(topology: Topology) -> list[Right]:
    return _topics(topology.sources, "CREATE", "DESCRIBE_CONFIGS", "READ", "WRITE")


def _auditor(topology: Topology) -> list[Right]:
    return _topics((*topology.sources, *_records(topology)), "READ")


def _driver(topology: Topology) -> list[Right]:
    spoken = {topology_topic(topology.app), progress_topic(topology.app)}
    return [
        *_topics(topology.sources, "DESCRIBE_CONFIGS", "READ"),
        *(
            Right("topic", plan.name, ("CREATE", "DESCRIBE_CONFIGS", *more))
            for plan in plan_topics(topology)
            for more in [("READ", "WRITE") if plan.name in spoken else ("DESCRIBE",)]
        ),
        Right("group", topology.app, ("READ",)),
        Right("group", driver_group(topology.app), ("READ",)),
    ]


def _host(topology: Topology) -> list[Right]:
    found = [
        Right("topic", plan.name, operations)
        for plan in plan_topics(topology)
        if (operations := _of_host(topology.app, plan))
    ]
    tasks = range(topology.partitions)
    ids = [Right("transactional-id", transactional_id(topology.app, p), ("WRITE",)) for p in tasks]
    return [*found, *ids]


def _of_host(app: str, plan: TopicPlan) -> tuple[str, ...]:
    if plan.store is not None:
        # To lift retention for old events (task.retention); alter implies describe.
        configs = "ALTER_CONFIGS" if plan.store.is_window else "DESCRIBE_CONFIGS"
        return (configs, "READ", "WRITE")
    if plan.name == commits_topic(app):
        return ("DESCRIBE_CONFIGS", "READ", "WRITE")
    if plan.name == topology_topic(app):
        return ("READ",)
    return () if plan.name == progress_topic(app) else ("DESCRIBE_CONFIGS", "WRITE")


def _operator(topology: Topology) -> list[Right]:
    app = topology.app
    return [
        *_topics(topology.sources, "DESCRIBE"),
        *_topics((commits_topic(app), progress_topic(app)), "READ"),
        Right("topic", topology_topic(app), ("READ", "WRITE")),
        Right("group", driver_group(app), ("DESCRIBE",)),
    ]


def _checker(topology: Topology) -> list[Right]:
    """It looks into all that it owns but dead letters; to alter implies to describe."""
    foreign = sorted({*topology.sources, *(o.topic for o in topology.outputs)})
    letters = dead_letter_queue(topology.app)
    return [
        *_topics(foreign, "DESCRIBE", "DESCRIBE_CONFIGS"),
        *(
            Right("topic", plan.name, ("ALTER_CONFIGS", one))
            for plan in plan_topics(topology)
            if plan.owned
            for one in ["DESCRIBE" if plan.name == letters else "READ"]
        ),
    ]


def _admin(topology: Topology) -> list[Right]:
    """Sizes come from samples, so it reads what it shows."""
    app, outputs = topology.app, sorted({o.topic for o in topology.outputs})
    return [
        *_topics((*topology.sources, *outputs), "READ"),
        *(
            Right("topic", plan.name, ("DELETE", "READ", *more))
            for plan in plan_topics(topology)
            if plan.owned
            for more in [("WRITE",) if plan.name == topology_topic(app) else ()]
        ),
        Right("group", driver_group(app), ("DESCRIBE",)),
    ]


def _records(topology: Topology) -> list[str]:
    """Topics whose records an audit reads; stores it reads from their hosts."""
    app = topology.app
    own = [topology_topic(app), progress_topic(app), commits_topic(app), dead_letter_queue(app)]
    return [*own, *sorted({o.topic for o in topology.outputs})]


def _topics(names: Iterable[str], *operations: str) -> list[Right]:
    return [Right("topic", name, operations) for name in names]


_OF: dict[Role, Callable[[Topology], list[Right]]] = {
    "driver": _driver,
    "host": _host,
    "loader": _loader,
    "auditor": _auditor,
    "operator": _operator,
    "checker": _checker,
    "admin": _admin,
}
