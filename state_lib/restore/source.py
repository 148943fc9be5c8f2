"""Is a directory or a snapshot valid to go on from? Pure functions over facts (invariant 5)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from state_lib.changelog.topics import DELETE_RETENTION_MS, changelog_topic, commits_topic
from state_lib.errors import LogLost
from state_lib.marker import Marker, same_positions
from state_lib.specs import Topology
from state_lib.stores.task_stores import Checkpoint, layout_of

AGE_MARGIN_MS = 3600 * 1000
"""Taken off ``delete.retention.ms``: a directory that is nearly too old counts as too old."""


@dataclass(frozen=True)
class LogRange:
    """Facts of one changelog partition: the topic's id, log start and last stable offset.

    ``delete_retention_ms`` is the topic's own: one that Kafka Streams made keeps tombstones a day.
    """

    topic_id: str
    start: int
    end: int
    delete_retention_ms: int = DELETE_RETENTION_MS


def is_current(checkpoint: Checkpoint, newest: Marker) -> bool:
    """Whether the state is that of the newest commit."""
    known = checkpoint.marker
    same_commit = (known.epoch, known.n) == (newest.epoch, newest.n)
    return same_commit and same_positions(known.positions, newest.positions)


def held(
    topology: Topology, checkpoint: Checkpoint, logs: Mapping[str, LogRange]
) -> dict[str, LogRange]:
    """The logs of those stores that a directory holds in their present layout.

    The others (new ones, those of another layout, memory stores) are built from their changelogs.
    """
    topics = {
        changelog_topic(topology.app, s.name)
        for s in topology.stores
        if s.backend != "memory" and checkpoint.layouts.get(s.name) == layout_of(s)
    }
    return {t: r for t, r in logs.items() if t in topics and t in checkpoint.offsets}


def lost_logs(
    topology: Topology, marker: Marker, checkpoint: Checkpoint | None, logs: Mapping[str, LogRange]
) -> dict[str, str]:
    """Topics that do not hold what was committed → what was seen; the commits topic comes first.

    Args:
        topology: of the application.
        marker: the newest.
        checkpoint: of the local directory, if there is one.
        logs: facts of every changelog that exists.
    """
    lost: dict[str, str] = {}
    commits = commits_topic(topology.app)
    if lost_commits(marker, checkpoint) and checkpoint is not None:
        here, there = _at(checkpoint.marker), _at(marker)
        lost[commits] = f"the local copy stands at commit {here}, its newest marker says {there}"
        marker = checkpoint.marker
    for topic, log in logs.items():
        held_id, held_to = (checkpoint.offsets.get(topic) or ("", 0)) if checkpoint else ("", 0)
        known = marker.logs.get(topic) or (held_id if _at(marker) >= (0, 0) else "")
        committed = max(marker.cut.get(topic, [0])[0], held_to if held_id == log.topic_id else 0)
        if known and known != log.topic_id:
            lost[topic] = (
                f"it was deleted and created again (its id was {known}, is {log.topic_id})"
            )
        elif committed > log.end:
            lost[topic] = f"it ends at offset {log.end}, and {committed} was committed"
        elif _at(marker) < (0, 0) and log.end > 0:
            lost[commits] = f"it holds no marker of this task, and {topic} {log.end} offsets"
    return lost


def lost_commits(marker: Marker, checkpoint: Checkpoint | None) -> bool:
    """Whether the directory stands beyond the newest marker."""
    return checkpoint is not None and _at(checkpoint.marker) > _at(marker)


def cut_logs(topology: Topology, marker: Marker, logs: Mapping[str, LogRange]) -> dict[str, str]:
    """Changelogs without their first records, though nothing but compaction may remove any."""
    found = {}
    for spec in topology.stores:
        topic = changelog_topic(topology.app, spec.name)
        log = logs.get(topic)
        if spec.is_window or log is None:
            continue  # brokers remove windows by their age
        known = marker.starts.get(topic, log.start)
        if log.start > known:
            found[topic] = f"its records before offset {log.start} were deleted"
    return found


def met(marker: Marker, logs: Mapping[str, LogRange]) -> dict[str, int]:
    """`Marker.starts` of an owner who finds these logs: new ones as they are."""
    return {
        topic: marker.starts.get(topic, log.start) if topic in marker.logs else log.start
        for topic, log in logs.items()
    }


def check_logs(
    topology: Topology,
    partition: int,
    marker: Marker,
    checkpoint: Checkpoint | None,
    logs: Mapping[str, LogRange],
) -> None:
    """Refuse topics that do not hold what was committed: to go on would count from nothing.

    Judged after other writers were fenced: before, the log's end may lag behind what stands.
    Arguments as `lost_logs`.

    Raises:
        LogLost: which topic, what was seen, and the ways out.
    """
    for topic, why in lost_logs(topology, marker, checkpoint, logs).items():
        raise log_lost(topology, partition, topic, why)


def log_lost(topology: Topology, partition: int, topic: str, why: str) -> LogLost:
    """The refusal, with its ways out."""
    app = topology.app
    return LogLost(
        f"task {app}/{partition} cannot go on: topic {topic!r} lost what was committed: {why}. "
        f"What this host has of it is kept. 'holdfast repair changelog {app} --task {partition}' "
        f"writes it anew from there; or begin anew: 'holdfast app reset {app}'. (After a reset "
        "that this host missed, remove its directory of the task)",
        task=f"{app}/{partition}",
        topic=topic,
    )


def _at(marker: Marker) -> tuple[int, int]:
    return marker.epoch, marker.n


def why_not_valid(
    checkpoint: Checkpoint | None, logs: Mapping[str, LogRange], newest: Marker, now: int
) -> str | None:
    """Why a directory cannot be used, or None if replaying its tail gives the exact state.

    Valid means: topic ids match, and either it stands at the newest marker (then nothing is left
    to replay, whatever the log has deleted since), or each offset lies within the log and the
    state is younger than the tombstones that the log still holds. Older, and keys that were
    deleted meanwhile would come back to life. (Offsets alone do not tell whether anything is left:
    after a commit the log ends with the transaction's control record.) ``now`` is wall time in ms.
    """
    if checkpoint is None:
        return "it holds no checkpoint"
    current = is_current(checkpoint, newest)
    age = now - checkpoint.marker.written_at
    for topic, log in logs.items():
        known = checkpoint.offsets.get(topic)
        if known is None:
            continue  # a store added since: it is built from its own changelog alone
        topic_id, offset = known
        if topic_id != log.topic_id:
            return f"topic {topic} was created again ({topic_id} is now {log.topic_id})"
        if offset > log.end or (offset < log.start and not current):
            return f"offset {offset} of {topic} is outside the log [{log.start}, {log.end}]"
        behind = offset < log.end and not current
        if behind and age > log.delete_retention_ms - AGE_MARGIN_MS:
            return f"its state is {age // 3_600_000} h old: tombstones since then may be gone"
    return None
