"""Topic names and configuration: the table of the design, and which names are refused."""

from __future__ import annotations

from dataclasses import replace

import pytest

from state_lib.changelog.admin import verify
from state_lib.changelog.policy import problems
from state_lib.changelog.topics import TopicPlan, changelog_topic, plan_topics
from state_lib.errors import ChangelogUnsafe, ConfigurationError
from state_lib.kafka import TopicFacts
from state_lib.specs import OutputSpec, StoreSpec, Topology
from tests.support.apps import HOUR, KV, TS, WIN, days

TOPOLOGY = Topology("app", 4, (KV, TS, WIN), (OutputSpec("out", "kv"),), ("in",))
PLANS = {p.name: p for p in plan_topics(TOPOLOGY, days(9))}
MAX = str(2**63 - 1)


def test_every_topic_and_no_other() -> None:
    assert set(PLANS) == {
        "app-kv-changelog", "app-ts-changelog", "app-win-changelog", "app-commits",
        "app-topology", "app-progress", "app-dead-letters", "out",
    }  # fmt: skip
    one = {n for n, p in PLANS.items() if p.partitions == 1}
    assert one == {"app-topology", "app-progress"}
    assert {p.partitions for n, p in PLANS.items() if n not in one} == {4}
    assert [n for n, p in PLANS.items() if not p.owned] == ["out"]


@pytest.mark.parametrize(
    ("topic", "policy", "more"),
    [
        ("app-kv-changelog", "compact", {"delete.retention.ms": str(days(7))}),
        ("app-ts-changelog", "compact", {"delete.retention.ms": str(days(7))}),
        ("app-win-changelog", "compact,delete", {"retention.ms": str(4 * HOUR + days(1))}),
        ("app-commits", "compact", {}),
        ("app-topology", "compact", {}),
        ("app-progress", "delete", {"retention.ms": str(days(9))}),
        ("app-dead-letters", "delete", {"retention.ms": "-1"}),
        ("out", "delete", {"retention.ms": "-1"}),
    ],
)
def test_configuration_is_that_of_the_table(topic: str, policy: str, more: dict[str, str]) -> None:
    config = PLANS[topic].config
    assert config["cleanup.policy"] == policy
    assert config["message.timestamp.type"] == "CreateTime"
    assert config["message.timestamp.after.max.ms"] == MAX
    assert config["message.timestamp.before.max.ms"] == MAX
    assert config["retention.bytes"] == "-1"
    assert more.items() <= config.items()
    assert ("retention.ms" in config) == ("retention.ms" in more)


@pytest.mark.parametrize(
    ("dated", "kind", "after", "refused"),
    [
        (True, "CreateTime", "3600000", True),
        (True, "CreateTime", MAX, False),
        (True, "CreateTime", None, False),
        (True, "LogAppendTime", "3600000", False),
        (False, "CreateTime", "3600000", False),
    ],
)
def test_an_output_whose_rows_are_of_the_future_takes_them(
    dated: bool,
    kind: str,
    after: str | None,
    refused: bool,
) -> None:
    """Brokers have an hour by default: each commit with a due date of next week would fail."""
    key = "message.timestamp.after.max.ms"
    plan = replace(PLANS["out"], dated=dated)
    config = {**plan.config, "message.timestamp.type": kind}
    config = {k: v for k, v in config.items() if k != key} | ({} if after is None else {key: after})
    assert [p.key for p in problems(plan, plan.partitions, config)] == [key] * refused


def test_names_do_not_tell_who_owns_a_topic() -> None:
    """Why ownership is what the topology lists: see docs/architecture.md, "Words"."""
    assert changelog_topic("a", "b-c") == changelog_topic("a-b", "c")


@pytest.mark.parametrize(
    ("outputs", "sources"),
    [(("in",), ("in",)), (("app-kv-changelog",), ()), (("o", "o"), ()), (("app-commits",), ())],
)
def test_a_topic_with_two_uses_is_refused(
    outputs: tuple[str, ...], sources: tuple[str, ...]
) -> None:
    specs = tuple(OutputSpec(o, "kv") for o in outputs)
    with pytest.raises(ConfigurationError) as refused:
        plan_topics(Topology("app", 4, (KV,), specs, sources))
    assert refused.value.details["topics"] == [outputs[0]]


def test_a_changelog_that_is_a_source_is_refused() -> None:
    with pytest.raises(ConfigurationError):
        plan_topics(Topology("app", 4, (KV,), (), ("app-kv-changelog",)))


def test_a_store_named_twice_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="twice"):
        Topology("app", 4, (KV, StoreSpec("kv", kind="timestamped-key-value")))


def seen(plan: TopicPlan, partitions: int = 4, **config: str) -> None:
    defaults = {
        "cleanup.policy": plan.config["cleanup.policy"],
        "retention.ms": plan.config.get("retention.ms", str(days(7))),
        "message.timestamp.type": "CreateTime",
        "retention.bytes": plan.config["retention.bytes"],
    }
    changed = {k.replace("_", "."): v for k, v in config.items()}
    verify(plan, TopicFacts(plan.name, "id", partitions, 1), defaults | changed)


def test_what_we_would_create_is_accepted() -> None:
    for plan in PLANS.values():
        seen(plan, plan.partitions)
    seen(PLANS["app-win-changelog"], retention_ms="-1")
    seen(PLANS["app-win-changelog"], cleanup_policy="compact")
    seen(PLANS["out"], cleanup_policy="compact", retention_ms="1000")
    seen(PLANS["out"], retention_bytes="1000000")
    seen(PLANS["app-kv-changelog"], retention_bytes="1000")


@pytest.mark.parametrize(
    ("topic", "config", "key", "needed"),
    [
        ("app-kv-changelog", {"partitions": 3}, "partitions", "4"),
        ("out", {"partitions": 5}, "partitions", "4"),
        ("app-kv-changelog", {"cleanup_policy": "delete"}, "cleanup.policy", "compact"),
        ("app-kv-changelog", {"cleanup_policy": "compact,delete"}, "cleanup.policy", "compact"),
        ("app-win-changelog", {"cleanup_policy": "delete"}, "cleanup.policy", "compact,delete"),
        ("app-dead-letters", {"cleanup_policy": "compact"}, "cleanup.policy", "delete"),
        ("app-win-changelog", {"retention_ms": str(4 * HOUR - 1)}, "retention.ms", str(4 * HOUR)),
        ("app-commits", {"cleanup_policy": "delete"}, "cleanup.policy", "compact"),
        ("app-commits", {"cleanup_policy": "compact,delete"}, "cleanup.policy", "compact"),
        ("app-ts-changelog", {"message_timestamp_type": "LogAppendTime"},
         "message.timestamp.type", "CreateTime"),
        ("out", {"retention_ms": str(days(3650))}, "retention.ms", "-1"),
        ("app-win-changelog", {"retention_bytes": "1000000"}, "retention.bytes", "-1"),
        ("app-progress", {"retention_bytes": "1000000", "partitions": 1}, "retention.bytes", "-1"),
        ("app-dead-letters", {"retention_bytes": "1000000"}, "retention.bytes", "-1"),
    ],
)  # fmt: skip
def test_what_loses_state_is_refused(
    topic: str, config: dict[str, str], key: str, needed: str
) -> None:
    with pytest.raises(ChangelogUnsafe) as refused:
        seen(PLANS[topic], **config)  # type: ignore[arg-type]
    details = refused.value.details
    assert (details["topic"], details["key"]) == (topic, key)
    assert details["seen"] == str(next(iter(config.values())))
    assert needed in details["needed"]
    for word in (topic, key, details["seen"], details["needed"]):
        assert word in refused.value.message
