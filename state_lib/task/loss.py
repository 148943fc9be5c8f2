"""Lost topics of a task, and whether the copy on its host can replace them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from state_lib.changelog.log import KafkaLog, LogRange
from state_lib.changelog.reader import read
from state_lib.changelog.topics import changelog_topic, commits_topic
from state_lib.kafka import Kafka, describe
from state_lib.protocol.marker import Marker
from state_lib.restore.facts import LocalFacts, log_ranges
from state_lib.restore.source import broken_logs, lost_commits, lost_logs
from state_lib.restore.validity import is_current
from state_lib.specs import StoreSpec, Topology
from state_lib.stores.task_stores import Checkpoint, layout_of
from state_lib.task.opening import newest_marker

At = tuple[int, int]


@dataclass(frozen=True)
class Loss:
    """The lost topics of one task.

    Attributes:
        task: ``<app>/<partition>``.
        host: the one that has the copy, or should have it.
        commit: epoch and batch number of the newest marker in Kafka.
        copy: epoch and batch number of the copy; None without one.
        topics: lost topic → what was found.
        missing: lost topics that do not exist: they have to be created first.
        snapshot: id of the snapshot that is the copy; None if it is the local one.
        why_not: why the copy cannot replace them; None if it can, or if nothing is lost.
    """

    task: str
    host: str
    commit: At
    copy: At | None
    topics: Mapping[str, str]
    missing: tuple[str, ...] = ()
    snapshot: str | None = None
    why_not: str | None = None

    def to_json(self) -> dict[str, Any]:
        """As plain data."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Loss:
        """From plain data."""
        copy = None if data["copy"] is None else tuple(data["copy"])
        known = {"commit": tuple(data["commit"]), "copy": copy, "missing": tuple(data["missing"])}
        return cls(**{**data, **known})


@dataclass(frozen=True)
class Found:
    """Facts of a task: the newest marker, and the logs that exist."""

    marker: Marker
    logs: Mapping[str, LogRange]
    missing: tuple[str, ...]


def find(kafka: Kafka, topology: Topology, partition: int) -> Found:
    """Look at Kafka.

    Raises:
        Unavailable: it is away.
    """
    app, admin = topology.app, kafka.admin()
    wanted = [*(changelog_topic(app, s.name) for s in topology.stores), commits_topic(app)]
    present = describe(admin, wanted)
    there = tuple(s for s in topology.stores if changelog_topic(app, s.name) in present)
    marker = newest_marker(kafka, topology, partition) if wanted[-1] in present else Marker()
    logs = log_ranges(KafkaLog(kafka), replace(topology, stores=there), partition) if there else {}
    return Found(marker, logs, tuple(t for t in wanted if t not in present))


def judge(  # noqa: PLR0913, PLR0917 - a task, and what was found of it
    kafka: Kafka,
    topology: Topology,
    partition: int,
    host: str,
    found: Found,
    copy: LocalFacts,
    snapshot: str | None = None,
) -> Loss:
    """What is lost, and whether a copy can replace it; ``snapshot``: id, if the copy is one."""
    checkpoint, marker = copy.checkpoint, found.marker
    lost = dict.fromkeys(found.missing, "it does not exist")
    lost |= broken_logs(topology, marker, found.logs)
    lost |= lost_logs(topology, marker, checkpoint, found.logs)
    loss = Loss(
        task=f"{topology.app}/{partition}",
        host=host,
        commit=_at(marker),
        copy=None if checkpoint is None else _at(checkpoint.marker),
        topics=lost,
        missing=found.missing,
        snapshot=snapshot,
    )
    if not lost:
        return loss
    if checkpoint is None:
        return replace(loss, why_not=f"host {host!r} has no copy of it: {copy.why or 'it is new'}")
    why = _not_held(topology, checkpoint, lost) or (
        _uncertain(kafka, topology, partition, checkpoint, found, lost)
        if commits_topic(topology.app) in lost or lost_commits(marker, checkpoint)
        else _behind(checkpoint, marker)
    )
    return replace(loss, why_not=why)


def lost_stores(topology: Topology, lost: Mapping[str, str]) -> list[StoreSpec]:
    """Stores whose changelogs are among lost topics."""
    return [s for s in topology.stores if changelog_topic(topology.app, s.name) in lost]


def _not_held(topology: Topology, checkpoint: Checkpoint, lost: Mapping[str, str]) -> str | None:
    for spec in lost_stores(topology, lost):
        if spec.backend == "memory":
            return f"store {spec.name!r} is in memory: its changelog was all there was of it"
        if checkpoint.layouts.get(spec.name) != layout_of(spec):
            return f"the copy does not hold store {spec.name!r} as it is declared now"
    return None


def _behind(checkpoint: Checkpoint, marker: Marker) -> str | None:
    if is_current(checkpoint, marker):
        return None
    return (
        f"the copy stands at commit {_at(checkpoint.marker)} and the newest marker at "
        f"{_at(marker)}: what was committed in between is in no copy"
    )


def _uncertain(
    kafka: Kafka,
    topology: Topology,
    partition: int,
    checkpoint: Checkpoint,
    found: Found,
    lost: Mapping[str, str],
) -> str | None:
    """Without markers: by the changelogs, whether anything was committed after the copy."""
    stores = lost_stores(topology, lost)
    if stores and topology.outputs:
        return (
            f"the commits topic and the changelog of {stores[0].name!r} are both lost, so nothing "
            "tells whether outputs were written after the copy: they would be written twice"
        )
    for topic, log in found.logs.items():
        known = checkpoint.offsets.get(topic)
        if topic in lost or known is None:
            continue
        for records in read(kafka, topic, partition, max(known[1], log.start), log.end):
            return (
                f"the copy stands at commit {_at(checkpoint.marker)}, and {topic} holds records "
                f"that were committed later (at offset {records[0].offset()})"
            )
    return None


def _at(marker: Marker) -> At:
    return marker.epoch, marker.batch_number
