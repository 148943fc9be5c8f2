"""Settings of topics that brokers do not report: older brokers, or services that hide some."""

from __future__ import annotations

from collections.abc import Mapping

from state_lib.changelog.topics import DELETE_RETENTION_MS
from state_lib.specs import DAY_MS

_MAX = str(2**63 - 1)
ASSUMED = {
    "cleanup.policy": "delete",
    "retention.ms": "-1",
    "retention.bytes": "-1",
    "delete.retention.ms": str(DELETE_RETENTION_MS),
    "message.timestamp.type": "CreateTime",
    "message.timestamp.before.max.ms": _MAX,
    "message.timestamp.after.max.ms": _MAX,
    "min.insync.replicas": "1",
    "unclean.leader.election.enable": "false",
    "min.cleanable.dirty.ratio": "0.5",
    "min.compaction.lag.ms": "0",
    "segment.ms": str(7 * DAY_MS),
    "segment.bytes": str(1 << 30),
}
"""Every setting that a check reads, and a value by which nothing is repaired."""


def told(
    config: Mapping[str, str], planned: Mapping[str, str]
) -> tuple[dict[str, str], tuple[str, ...]]:
    """A complete configuration, and the names of missing settings, which are taken as planned.

    Args:
        config: from brokers; ``None`` for hidden values.
        planned: of the topic.
    """
    # An empty policy is a value.
    nothing = ("None", "")
    untold = tuple(
        key
        for key in ASSUMED
        if (value := config.get(key, "None")) in nothing
        if value == "None" or key != "cleanup.policy"
    )
    wanted = {**ASSUMED, **planned}
    return {**config, **{key: wanted[key] for key in untold}}, untold
