"""What a replica may begin with, before it reads the changelogs on."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

from state_lib.changelog.log import KafkaLog
from state_lib.digests.room import require_room
from state_lib.errors import NotFound
from state_lib.kafka import Kafka
from state_lib.protocol.marker import Marker, now_ms
from state_lib.restore.facts import settled_ranges
from state_lib.restore.validity import judge
from state_lib.snapshots.fetch import fetch
from state_lib.snapshots.listing import survey, task_storage, why_not_listed
from state_lib.snapshots.manifest import Manifest
from state_lib.specs import Topology

SourceName = Literal["changelog", "snapshot"]


class Fill(Protocol):
    """Puts a task's stores into a directory that does not exist yet."""

    def __call__(
        self, topology: Topology, partition: int, path: Path, newest: Marker
    ) -> Mapping[str, int]:
        """Changelog topic → next offset of what is there; the rest is read from its log's start.

        Args:
            topology: with the stores that are wanted.
            partition: of the task.
            path: the directory.
            newest: marker of the task.
        """


def from_nothing(
    topology: Topology, partition: int, path: Path, newest: Marker
) -> Mapping[str, int]:
    """A full replay."""
    del topology, partition, path, newest
    return {}


@dataclass(frozen=True)
class Chosen:
    """The snapshot that a restore would take.

    ``kept``: changelogs whose stores are in it; ``passed_over``: newer ones, with reasons.
    """

    manifest: Manifest
    kept: Collection[str]
    passed_over: tuple[str, ...] = ()


def choose_snapshot(
    kafka: Kafka, url: str, topology: Topology, partition: int, newest: Marker
) -> Chosen:
    """The newest snapshot in storage from which a restore could go on.

    Raises:
        NotFound: there is none; its detail ``known`` has the ids of those that cannot be used.
        StorageUnavailable: naming the URL.
    """
    logs = settled_ranges(KafkaLog(kafka), topology, partition, newest)
    reasons = dict[str, str]()
    app = topology.app
    for found in survey(task_storage(url, app, partition), app, partition):
        manifest = found.listed
        if manifest is None:
            reasons[found.id] = why_not_listed(found)
            continue
        judged = judge(topology, manifest.checkpoint, logs, newest, now_ms())
        if judged.why_not is None and judged.kept:
            return Chosen(manifest, judged.kept, tuple(f"{i}: {w}" for i, w in reasons.items()))
        reasons[found.id] = judged.why_not or "it holds none of these stores"
    why = "; ".join(f"{i}: {w}" for i, w in reasons.items())
    raise NotFound(
        f"no snapshot of {app}/{partition} in {url} can be used ({why or 'there is none'}): "
        f"'holdfast snapshot create {app}'",
        task=f"{app}/{partition}",
        url=url,
        known=list(reasons),
    )


def fetch_snapshot(chosen: Chosen, path: Path) -> dict[str, int]:
    """Bring it; returns changelog topic → next offset of what is in it.

    Raises:
        SnapshotInvalid: a file is not what the manifest says.
        StorageUnavailable: naming the URL.
        Unavailable: too little room.
    """
    require_room(path.parent, chosen.manifest.size_bytes)
    fetch(chosen.manifest, path)
    return {topic: int(chosen.manifest.offsets[topic][1]) for topic in chosen.kept}


def from_snapshot(kafka: Kafka, url: str) -> Fill:
    """The newest snapshot in storage from which a restore could go on."""

    def fill(topology: Topology, partition: int, path: Path, newest: Marker) -> dict[str, int]:
        return fetch_snapshot(choose_snapshot(kafka, url, topology, partition, newest), path)

    return fill
