"""Is a directory valid to go on from? Pure functions over gathered facts (invariant 5)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from state_lib.changelog.topics import DELETE_RETENTION_MS
from state_lib.marker import now_ms
from state_lib.stores.task_stores import Checkpoint

AGE_MARGIN_MS = 3600 * 1000
"""Taken off ``delete.retention.ms``: a directory that is nearly too old counts as too old."""


@dataclass(frozen=True)
class LogRange:
    """Facts of one changelog partition: the topic's id, log start and last stable offset."""

    topic_id: str
    start: int
    end: int


def why_not_valid(checkpoint: Checkpoint | None, logs: Mapping[str, LogRange]) -> str | None:
    """Why a directory cannot be used, or None if replaying its tail gives the exact state.

    Valid means: topic ids match, each offset lies within the log, and either nothing is left to
    replay or the state is younger than the tombstones that the log still holds. Older, and keys
    that were deleted meanwhile would come back to life.
    """
    if checkpoint is None:
        return "it holds no checkpoint"
    behind = False
    for topic, log in logs.items():
        known = checkpoint.offsets.get(topic)
        if known is None:
            continue  # a store added since: it is built from its own changelog alone
        topic_id, offset = known
        if topic_id != log.topic_id:
            return f"topic {topic} was created again ({topic_id} is now {log.topic_id})"
        if not log.start <= offset <= log.end:
            return f"offset {offset} of {topic} is outside the log [{log.start}, {log.end}]"
        behind = behind or offset < log.end
    age = now_ms() - checkpoint.marker.written_at
    if behind and age > DELETE_RETENTION_MS - AGE_MARGIN_MS:
        return f"its state is {age // 3_600_000} h old: tombstones since then may be gone"
    return None
