"""The source to rewrite a lost topic from: the local copy, else a snapshot of the same commit."""

from __future__ import annotations

from dataclasses import replace

from state_lib.errors import StorageUnavailable
from state_lib.kafka import Kafka
from state_lib.restore.facts import LocalFacts
from state_lib.restore.local import Local, asides, building_of, look, mark_whole, swap_in
from state_lib.snapshots.fetch import fetch
from state_lib.snapshots.listing import find as find_snapshot
from state_lib.snapshots.listing import list_snapshots
from state_lib.specs import Topology
from state_lib.stores.task_stores import Checkpoint
from state_lib.task.loss import Found, Loss, find, judge
from state_lib.task.opening import Opening


def best_copy(opening: Opening, local: LocalFacts, found: Found | None = None) -> Loss:
    """What is lost, and what can replace it: `Loss.snapshot` is set if that is a snapshot.

    Raises:
        Unavailable: Kafka is away.
    """
    kafka, topology, partition = opening.context.kafka, opening.topology, opening.partition
    host, url = opening.context.host_id, opening.context.restore.snapshots_url
    found = found or find(kafka, topology, partition)
    if local.in_use and local.checkpoint is not None:
        found = _as_committed(found, local.checkpoint)
    loss = judge(kafka, topology, partition, host, found, local)
    if loss.why_not is None or url is None or local.in_use:
        return loss
    return _of_snapshot(kafka, topology, partition, loss, found, url) or loss


def brought(opening: Opening, loss: Loss, local: Local) -> Local:
    """The directory to rewrite from; a snapshot replaces a worse local copy.

    Raises:
        StorageUnavailable, SnapshotInvalid: it cannot be fetched; the local copy is unchanged.
    """
    if loss.snapshot is None:
        return local
    local.close()
    path, context = opening.path, opening.context
    manifest = find_snapshot(
        context.restore.snapshots_url or "", opening.topology.app, opening.partition, loss.snapshot
    )

    def report(_phase: str, done: int, total: int) -> None:
        opening.listener.on_snapshot_fetched(opening.name, done, total)
        opening.check_cancelled()

    fetch(manifest, building_of(path), [p for p in (path, *asides(path)) if p.exists()], report)
    mark_whole(building_of(path))
    swap_in(path, f"snapshot {loss.snapshot} was taken to repair from")
    return look(opening.topology, path, context.options)


def _as_committed(found: Found, checkpoint: Checkpoint) -> Found:
    """Facts of an open task, whose last commit brokers may not show yet: that is no loss."""
    ends = {topic: at[1] for topic, at in checkpoint.offsets.items()}
    logs = {t: replace(g, end=max(g.end, ends.get(t, 0))) for t, g in found.logs.items()}
    return replace(found, marker=checkpoint.marker, logs=logs)


def _of_snapshot(
    kafka: Kafka, topology: Topology, partition: int, loss: Loss, found: Found, url: str
) -> Loss | None:
    try:
        manifests = list_snapshots(url, topology.app, partition)
    except StorageUnavailable:
        return None
    for manifest in manifests:
        facts = LocalFacts(manifest.checkpoint)
        other = judge(kafka, topology, partition, loss.host, found, facts, snapshot=manifest.id)
        if other.topics and other.why_not is None:
            return other
    return None
