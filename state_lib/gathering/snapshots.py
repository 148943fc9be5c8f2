"""What storage holds of an application's snapshots, and whether a restore could use it now."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

from state_lib.changelog.log import LogRange
from state_lib.changelog.topics import changelog_topic
from state_lib.checks.facts import SnapshotSeen, SnapshotsSeen, TopicSeen
from state_lib.errors import StorageUnavailable
from state_lib.protocol.marker import Marker
from state_lib.restore.validity import is_current, judge
from state_lib.snapshots.listing import (
    Found,
    stored_tasks,
    survey,
    task_storage,
    why_not_listed,
)
from state_lib.specs import Topology

_AT_ONCE = 16


def snapshots_seen(
    url: str,
    topology: Topology,
    topics: Mapping[str, TopicSeen],
    markers: Sequence[Marker],
    now: int,
) -> SnapshotsSeen:
    """The newest listed one of each task; storage that is away is a finding, no error."""
    app = topology.app
    try:
        stored = [p for p in stored_tasks(url, app) if p < topology.partitions]
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            surveys = pool.map(lambda p: survey(task_storage(url, app, p), app, p), stored)
            found = dict(zip(stored, surveys, strict=True))
    except StorageUnavailable as error:
        return SnapshotsSeen(url, away=error.message)
    broken = {
        one.id: why_not_listed(one)
        for surveyed in found.values()
        for one in surveyed
        if one.listed is None
    }
    newest = {
        partition: seen
        for partition, surveyed in found.items()
        if (seen := _newest(topology, partition, surveyed, topics, markers, now)) is not None
    }
    return SnapshotsSeen(url, newest, broken)


def _newest(
    topology: Topology,
    partition: int,
    found: Sequence[Found],
    topics: Mapping[str, TopicSeen],
    markers: Sequence[Marker],
    now: int,
) -> SnapshotSeen | None:
    manifest = next((f.listed for f in found if f.listed is not None), None)
    if manifest is None or partition >= len(markers):
        return None
    marker, logs = markers[partition], _logs(topology, partition, topics)
    current = is_current(manifest.checkpoint, marker)
    whole = len(logs) == len(topology.stores)
    why = judge(topology, manifest.checkpoint, logs, marker, now).why_not if whole else None
    return SnapshotSeen(manifest.id, manifest.written_at, manifest.size_bytes, why, current)


def _logs(
    topology: Topology, partition: int, topics: Mapping[str, TopicSeen]
) -> dict[str, LogRange]:
    names = [changelog_topic(topology.app, s.name) for s in topology.stores]
    return {
        name: LogRange(
            seen.id,
            seen.starts[partition],
            seen.ends[partition],
            int(seen.config["delete.retention.ms"]),
        )
        for name in names
        if (seen := topics.get(name)) is not None and partition < len(seen.ends)
    }
