"""What a plan is made from: gathered once, as plain values."""

from __future__ import annotations

import contextlib
import os
import shutil
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from state_lib.changelog.log import CommitLog, LogRange
from state_lib.changelog.sample import Sample
from state_lib.changelog.topics import changelog_topic
from state_lib.errors import StorageUnavailable
from state_lib.protocol.marker import Marker, now_ms
from state_lib.snapshots.listing import survey, task_storage, unlisted
from state_lib.snapshots.manifest import Manifest
from state_lib.specs import Topology
from state_lib.stores.task_stores import Checkpoint

SAMPLE_FROM = 20_000
"""Offsets from which on a log is worth a look at how large its records are."""
SETTLE_S = 5.0
"""What a transaction that was committed may take until it is over in every log."""


@dataclass(frozen=True)
class LocalFacts:
    """The task's own directory.

    ``why``: it is missing or cannot be opened; None if it can. ``in_use``: the task is open, and
    so its memory stores are filled. ``aside_bytes``: of those that its host has set aside.
    """

    checkpoint: Checkpoint | None = None
    why: str | None = None
    size_bytes: int = 0
    in_use: bool = False
    aside_bytes: int = 0


@dataclass(frozen=True)
class Facts:
    """Everything that `state_lib.restore.plan.make_plan` looks at.

    Attributes:
        topology, partition: of the task.
        marker: the newest.
        logs: of the task's changelog partitions, by topic.
        local: its directory.
        samples: of logs that are long, by topic.
        snapshots: of the task, newest first.
        unlisted: id of what storage holds besides → why it is no snapshot that can be used.
        refused: id of a snapshot → why it turned out not to be usable.
        storage: why snapshots could not be looked for, or None.
        free_bytes: on the disk of the directory.
        now: wall time in ms.
    """

    topology: Topology
    partition: int
    marker: Marker
    logs: Mapping[str, LogRange]
    local: LocalFacts
    free_bytes: int
    now: int
    samples: Mapping[str, Sample] = field(default_factory=dict)
    snapshots: tuple[Manifest, ...] = ()
    unlisted: Mapping[str, str] = field(default_factory=dict)
    refused: Mapping[str, str] = field(default_factory=dict)
    storage: str | None = None

    @property
    def task(self) -> str:
        """``<app>/<partition>``."""
        return f"{self.topology.app}/{self.partition}"


def log_ranges(log: CommitLog, topology: Topology, partition: int) -> dict[str, LogRange]:
    """Facts of the task's changelog partitions, as they are now.

    Raises:
        MissingTopic: naming it.
        Unavailable: Kafka is away.
    """
    return log.ranges([changelog_topic(topology.app, s.name) for s in topology.stores], partition)


def settled_ranges(
    log: CommitLog, topology: Topology, partition: int, marker: Marker
) -> dict[str, LogRange]:
    """The same once the task's newest commit is in all of them, or will not be. Raises as above.

    Brokers end a transaction in one log after the other: it may be over in that of the markers
    while a changelog still ends before it. Who has fenced other writers need not wait.
    """
    until = time.monotonic() + SETTLE_S
    logs = log_ranges(log, topology, partition)
    known = [topic for topic, at in logs.items() if marker.logs.get(topic) == at.topic_id]
    while short := [t for t in known if logs[t].end < marker.committed.get(t, 0)]:
        if time.monotonic() > until:
            break
        time.sleep(0.05)
        for topic, end in log.ends(short, partition).items():
            logs[topic] = replace(logs[topic], end=end)
    return logs


def gather(  # noqa: PLR0913 - what is known of one task
    log: CommitLog,
    topology: Topology,
    partition: int,
    path: Path,
    marker: Marker,
    local: LocalFacts,
    *,
    fenced: bool,
) -> Facts:
    """What tells whether the local directory is valid, for a quick start if it is.

    Args:
        log: of the task.
        topology: of the application.
        partition: of the task.
        path: its directory.
        marker: the newest.
        local: what is known of the directory.
        fenced: whether nobody else's transaction can be under way; see `settled_ranges`.
    """
    logs = (
        log_ranges(log, topology, partition)
        if fenced
        else settled_ranges(log, topology, partition, marker)
    )
    return Facts(
        topology=topology,
        partition=partition,
        marker=marker,
        logs=logs,
        local=local,
        free_bytes=free_bytes(path),
        now=now_ms(),
    )


def thorough(
    facts: Facts, log: CommitLog, snapshots_url: str | None, refused: Mapping[str, str]
) -> Facts:
    """The same, with snapshots, and with looks into long logs so that sizes are known."""
    if snapshots_url is not None:
        facts = _with_snapshots(facts, snapshots_url)
    samples = {
        topic: log.sample(topic, facts.partition, at.start, at.end)
        for topic, at in facts.logs.items()
        if at.end - at.start >= SAMPLE_FROM
    }
    return replace(facts, samples=samples, refused=refused)


def _with_snapshots(facts: Facts, url: str) -> Facts:
    """Storage that is away does not keep a task closed: there is the changelog."""
    app, partition = facts.topology.app, facts.partition
    try:
        found = survey(task_storage(url, app, partition), app, partition)
    except StorageUnavailable as error:
        return replace(facts, storage=error.message)
    listed = (one.listed for one in found)
    whole = tuple(manifest for manifest in listed if manifest is not None)
    return replace(facts, snapshots=whole, unlisted=unlisted(found))


def free_bytes(path: Path) -> int:
    """Free space where a directory is or would be."""
    while not path.exists():
        path = path.parent
    return shutil.disk_usage(path).free


def size_of(paths: Sequence[Path]) -> int:
    """Bytes of all files below some directories; what vanishes meanwhile counts as nothing."""
    total = 0
    for path in paths:
        for folder, _, files in os.walk(path):  # unlike rglob, it tolerates removed files
            for file in files:
                with contextlib.suppress(FileNotFoundError):
                    total += Path(folder, file).stat().st_size
    return total
