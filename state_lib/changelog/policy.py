"""Settings by which a topic would lose what it keeps: for starts, and for the scheduled check."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from state_lib.changelog.topics import TopicPlan
from state_lib.specs import StoreSpec

_AFTER = "message.timestamp.after.max.ms"
_MOST = str(2**63 - 1)
"""The value for brokers that do not know the setting."""


@dataclass(frozen=True)
class Problem:
    """One setting by which a topic would lose what it keeps.

    Attributes:
        key: of the configuration; ``partitions`` for their count.
        seen, needed: the values, as text.
        cure: the value to set; None if no value helps, or if the topic is not the application's
            own.
    """

    key: str
    seen: str
    needed: str
    cure: str | None = None


def problems(plan: TopicPlan, partitions: int, config: Mapping[str, str]) -> Iterator[Problem]:
    """Problems of an existing topic, the worst first."""
    if partitions != plan.partitions:
        yield Problem("partitions", str(partitions), str(plan.partitions))
    policies = {p.strip() for p in config["cleanup.policy"].split(",")}
    if plan.owned and "delete" in policies and config["retention.bytes"] != "-1":
        seen = config["retention.bytes"]
        yield Problem("retention.bytes", seen, "-1 (no bound by size)", "-1")
    if plan.store is not None:
        yield from _of_changelog(plan, plan.store, policies, config)
    elif plan.owned:
        wanted = plan.config["cleanup.policy"]
        if policies != {wanted} and "compact" in (wanted, *policies):
            # Compaction would delete all but the last of the records with equal keys.
            yield Problem("cleanup.policy", config["cleanup.policy"], wanted, wanted)
    elif "delete" in policies and config["retention.ms"] != "-1":
        needed = "-1 (records carry event time)"
        yield Problem("retention.ms", config["retention.ms"], needed)
    if plan.dated and config["message.timestamp.type"] == "CreateTime":
        seen = config.get(_AFTER, _MOST)
        if int(seen) < int(_MOST):
            yield Problem(_AFTER, seen, f"{_MOST} (rows say themselves when they are)")


def _of_changelog(
    plan: TopicPlan, store: StoreSpec, policies: set[str], config: Mapping[str, str]
) -> Iterator[Problem]:
    stamps, policy = config["message.timestamp.type"], config["cleanup.policy"]
    if stamps != "CreateTime":
        yield Problem("message.timestamp.type", stamps, "CreateTime", "CreateTime")
    wanted = plan.config["cleanup.policy"]
    if "compact" not in policies:
        yield Problem("cleanup.policy", policy, wanted, wanted)
    elif "delete" in policies and not store.is_window:
        yield Problem("cleanup.policy", policy, "compact", "compact")
    if "delete" not in policies or not store.is_window:
        return
    retention = int(config["retention.ms"])
    if retention != -1 and retention < store.retention_ms:
        cure = plan.config["retention.ms"]
        yield Problem("retention.ms", str(retention), f"at least {store.retention_ms}", cure)
