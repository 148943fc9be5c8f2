"""Creates an application's topics, and refuses existing ones that would lose its state."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence

import structlog
from confluent_kafka import KafkaException
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)

from state_lib.changelog.policy import Problem, problems
from state_lib.changelog.topics import TopicPlan
from state_lib.errors import ChangelogUnsafe, MissingTopic, Unavailable
from state_lib.kafka import (
    ADMIN_TIMEOUT_S,
    TopicFacts,
    answer,
    describe,
    ends,
    require,
    unavailable,
)

log = structlog.get_logger(__name__)
NEW_PARTITION_S = 0.05
"""Seconds that each new partition adds to the time-out: brokers elect leaders one by one."""


def ensure_topics(
    admin: AdminClient, plans: Sequence[TopicPlan], replication: int, min_insync: int
) -> dict[str, TopicFacts]:
    """Create missing topics, verify existing ones, and return the facts of all.

    Raises:
        ChangelogUnsafe: an existing topic has another partition count, or a setting that loses
            state; names topic, key, value seen and value needed.
    """
    existing = describe(admin, [p.name for p in plans])
    missing = [p for p in plans if p.name not in existing]
    if missing:
        _create(admin, missing, replication, min_insync)
    present = [p for p in plans if p.name in existing]
    configs = topic_configs(admin, [p.name for p in present])
    for plan in present:
        verify(plan, existing[plan.name], configs[plan.name])
        if existing[plan.name].replication < replication:
            log.warning(
                "topic has fewer replicas than configured",
                topic=plan.name,
                seen=existing[plan.name].replication,
                wanted=replication,
            )
    if missing:
        _await(admin, missing)
    return require(admin, [p.name for p in plans])


def verify(plan: TopicPlan, facts: TopicFacts, config: dict[str, str]) -> None:
    """Refuse a topic whose settings would lose what it keeps. Asks nobody."""
    for found in problems(plan, facts.partitions, config):
        _refuse(plan.name, found)


def topic_configs(admin: AdminClient, names: Iterable[str]) -> dict[str, dict[str, str]]:
    """Effective configuration of topics."""
    resources = [ConfigResource(ResourceType.TOPIC, n) for n in names]
    if not resources:
        return {}
    out: dict[str, dict[str, str]] = {}
    for resource, future in admin.describe_configs(
        resources, request_timeout=ADMIN_TIMEOUT_S
    ).items():
        try:
            entries = answer(admin, future)
        except KafkaException as error:
            what = f"describe the configuration of topic {resource.name!r}"
            raise unavailable(what, error, admin) from error
        out[resource.name] = {k: str(e.value) for k, e in entries.items()}
    return out


def set_topic_config(admin: AdminClient, topic: str, key: str, value: str) -> None:
    """Change one setting of one topic that the application owns."""
    set_topic_configs(admin, topic, {key: value})


def set_topic_configs(admin: AdminClient, topic: str, config: Mapping[str, str]) -> None:
    """Change some settings of one topic that the application owns, all or none.

    Raises:
        Unavailable: Kafka could not be asked.
        KafkaRefused: this principal may not, or the brokers reject the value.
    """
    entries = [
        ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET)
        for key, value in config.items()
    ]
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=entries)
    for future in admin.incremental_alter_configs(
        [resource], request_timeout=ADMIN_TIMEOUT_S
    ).values():
        try:
            answer(admin, future)
        except KafkaException as error:
            what = f"set {', '.join(config)} of topic {topic!r}"
            raise unavailable(what, error, admin) from error


def _create(
    admin: AdminClient, plans: Sequence[TopicPlan], replication: int, min_insync: int
) -> None:
    new = [
        NewTopic(
            p.name,
            num_partitions=p.partitions,
            replication_factor=replication,
            config={**p.config, "min.insync.replicas": str(min_insync)},
        )
        for p in plans
    ]
    for name, future in admin.create_topics(new, operation_timeout=ADMIN_TIMEOUT_S).items():
        try:
            answer(admin, future)
            log.info("created topic", topic=name)
        except KafkaException as error:
            if error.args[0].name() != "TOPIC_ALREADY_EXISTS":
                raise unavailable(f"create topic {name!r}", error, admin) from error


def _await(admin: AdminClient, plans: Sequence[TopicPlan]) -> None:
    """Wait until brokers know new topics and their leaders, which they do some time after."""
    partitions = [(p.name, i) for p in plans for i in range(p.partitions)]
    deadline = time.monotonic() + ADMIN_TIMEOUT_S + len(partitions) * NEW_PARTITION_S
    while True:
        try:
            require(admin, [p.name for p in plans])
            ends(admin, partitions)
        except (MissingTopic, Unavailable):
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)
        else:
            return


def _refuse(topic: str, found: Problem) -> None:
    key, seen, needed = found.key, found.seen, found.needed
    raise ChangelogUnsafe(
        f"topic {topic!r} has {key}={seen} but needs {needed}: correct it with kafka-configs (or "
        "delete the topic if its state is not wanted), then start again",
        topic=topic,
        key=key,
        seen=seen,
        needed=needed,
    )
