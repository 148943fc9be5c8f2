"""What a replica may begin with, before it reads the changelogs on."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Literal, Protocol

from state_lib.digests.room import require_room
from state_lib.errors import NotFound
from state_lib.kafka import Kafka
from state_lib.marker import Marker, now_ms
from state_lib.restore.facts import log_ranges
from state_lib.restore.validity import judge
from state_lib.snapshots.fetch import fetch
from state_lib.snapshots.listing import list_snapshots
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


def from_snapshot(kafka: Kafka, url: str) -> Fill:
    """The newest snapshot in storage from which a restore could go on."""

    def fill(topology: Topology, partition: int, path: Path, newest: Marker) -> dict[str, int]:
        logs = log_ranges(kafka, topology, partition)
        reasons = []
        for manifest in list_snapshots(url, topology.app, partition):
            found = judge(topology, manifest.checkpoint, logs, newest, now_ms())
            if found.why_not is None and found.kept:
                require_room(path.parent, manifest.size_bytes)
                fetch(manifest, path)
                return {topic: int(manifest.offsets[topic][1]) for topic in found.kept}
            reasons.append(f"{manifest.id}: {found.why_not or 'it holds none of these stores'}")
        raise NotFound(
            f"no snapshot of {topology.app}/{partition} in {url} can be used "
            f"({'; '.join(reasons) or 'there is none'}): 'holdfast snapshot create {topology.app}'",
            task=f"{topology.app}/{partition}",
            url=url,
        )

    return fill
