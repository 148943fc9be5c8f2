"""Creates an application's topics, and refuses existing ones that would lose its state."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence

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
from state_lib.specs import StoreSpec

log = structlog.get_logger(__name__)


def ensure_topics(
    admin: AdminClient, plans: Sequence[TopicPlan], replication: int, min_insync: int
) -> dict[str, TopicFacts]:
    """Create what is missing, verify what exists, and return the facts of all.

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
    """Refuse a topic that cannot protect what it is for. Pure: facts in, error out."""
    if facts.partitions != plan.partitions:
        _refuse(plan.name, "partitions", str(facts.partitions), str(plan.partitions))
    policies = {p.strip() for p in config["cleanup.policy"].split(",")}
    if plan.owned and "delete" in policies and config["retention.bytes"] != "-1":
        _refuse(plan.name, "retention.bytes", config["retention.bytes"], "-1 (no bound by size)")
    if plan.store is not None:
        _verify_changelog(plan, plan.store, policies, config)
    elif plan.owned:
        wanted = plan.config["cleanup.policy"]
        if wanted == "compact" and policies != {"compact"}:
            _refuse(plan.name, "cleanup.policy", config["cleanup.policy"], wanted)
    elif "delete" in policies and config["retention.ms"] != "-1":
        needed = "-1 (records carry event time)"
        _refuse(plan.name, "retention.ms", config["retention.ms"], needed)


def _verify_changelog(
    plan: TopicPlan, store: StoreSpec, policies: set[str], config: dict[str, str]
) -> None:
    if config["message.timestamp.type"] != "CreateTime":
        seen = config["message.timestamp.type"]
        _refuse(plan.name, "message.timestamp.type", seen, "CreateTime")
    if "compact" not in policies:
        _refuse(
            plan.name, "cleanup.policy", config["cleanup.policy"], plan.config["cleanup.policy"]
        )
    if "delete" not in policies:
        return
    if not store.is_window:
        _refuse(plan.name, "cleanup.policy", config["cleanup.policy"], "compact")
    retention = int(config["retention.ms"])
    if retention != -1 and retention < store.retention_ms:
        _refuse(plan.name, "retention.ms", str(retention), f"at least {store.retention_ms}")


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
    resource = ConfigResource(
        ResourceType.TOPIC,
        topic,
        incremental_configs=[ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET)],
    )
    for future in admin.incremental_alter_configs(
        [resource], request_timeout=ADMIN_TIMEOUT_S
    ).values():
        try:
            answer(admin, future)
        except KafkaException as error:
            raise unavailable(f"set {key} of topic {topic!r}", error, admin) from error


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
    """Wait until brokers know new topics and their leaders: "created" does not mean that yet."""
    partitions = [(p.name, i) for p in plans for i in range(p.partitions)]
    deadline = time.monotonic() + ADMIN_TIMEOUT_S
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


def _refuse(topic: str, key: str, seen: str, needed: str) -> None:
    raise ChangelogUnsafe(
        f"topic {topic!r} has {key}={seen} but needs {needed}: correct it with kafka-configs (or "
        "delete the topic if its state is not wanted), then start again",
        topic=topic,
        key=key,
        seen=seen,
        needed=needed,
    )
