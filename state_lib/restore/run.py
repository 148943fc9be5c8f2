"""Opens a task's directory, or builds it: local state and its tail if valid, else the changelog."""

from __future__ import annotations

import shutil
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import structlog

from state_lib.changelog.topics import changelog_topic
from state_lib.errors import StateCorrupt
from state_lib.kafka import Kafka
from state_lib.marker import Marker
from state_lib.restore.listener import RestoreListener
from state_lib.restore.replay import Replay
from state_lib.restore.source import LogRange, is_current, why_not_valid
from state_lib.specs import Topology
from state_lib.stores.rocksdb.options import RocksDBOptions
from state_lib.stores.task_stores import Checkpoint, TaskStores, layout_of

log = structlog.get_logger(__name__)


@dataclass(frozen=True)
class RestoreRequest:
    """Everything that a restore of one task needs to know.

    ``logs`` are the facts of the task's changelog partitions by topic; ``marker`` is the newest,
    read after the writer fenced all others, so that the logs cannot move any more.
    """

    kafka: Kafka
    topology: Topology
    partition: int
    path: Path
    logs: Mapping[str, LogRange]
    marker: Marker
    options: RocksDBOptions
    listener: RestoreListener

    @property
    def name(self) -> str:
        """``<app>/<partition>``."""
        return f"{self.topology.app}/{self.partition}"


def restore_task(request: RestoreRequest) -> TaskStores:
    """Return open stores that stand at ``request.marker`` exactly.

    A directory that cannot be used is set aside, rebuilt from the changelog beside it, and
    removed only when the rebuilt one is in place.

    Raises:
        Unavailable: Kafka or the disk is away; nothing was set aside for that.
    """
    stores = _open_or_rebuild(request)
    for aside in request.path.parent.glob(f"{request.path.name}.aside-*"):
        shutil.rmtree(aside, ignore_errors=True)
    return stores


def _open_or_rebuild(request: RestoreRequest) -> TaskStores:
    reason = None
    if request.path.exists():
        stores = None
        try:
            stores = TaskStores(request.topology, request.path, request.options)
            reason = _why_not_valid(request, stores.checkpoint())
            if reason is None:
                _replay_local(request, stores)
                return stores
        except StateCorrupt as error:
            reason = error.message
        except BaseException:
            if stores is not None:
                stores.close()
            raise
        if stores is not None:
            stores.close()
        log.warning("local state is not usable: rebuilding", task=request.name, reason=reason)
        set_aside(request.path)
    return _rebuild(request)


def set_aside(path: Path) -> Path:
    """Rename a directory that must not be used again; returns its new place."""
    aside = path.with_name(f"{path.name}.aside-{time.time_ns()}")
    path.rename(aside)
    return aside


def _why_not_valid(request: RestoreRequest, checkpoint: Checkpoint | None) -> str | None:
    """Judge by the stores that the directory holds; the others are built from their changelogs."""
    held = request.logs if checkpoint is None else _held(request, checkpoint)
    return why_not_valid(checkpoint, held, request.marker)


def _held(request: RestoreRequest, checkpoint: Checkpoint) -> dict[str, LogRange]:
    topics = {
        changelog_topic(request.topology.app, s.name)
        for s in request.topology.stores
        if s.backend != "memory" and checkpoint.layouts.get(s.name) == layout_of(s)
    }
    return {t: r for t, r in request.logs.items() if t in topics and t in checkpoint.offsets}


def _replay_local(request: RestoreRequest, stores: TaskStores) -> None:
    checkpoint = stores.checkpoint()
    held = {} if checkpoint is None else _held(request, checkpoint)
    current = checkpoint is not None and is_current(checkpoint, request.marker)
    replay = _replayer(request, stores)
    for spec in request.topology.stores:
        topic = changelog_topic(request.topology.app, spec.name)
        log_range = request.logs[topic]
        if checkpoint is None or topic not in held:
            stores.clear(spec.name)  # what an interrupted build or another layout left
            replay.full(spec, log_range.start, log_range.end)
        elif not current:
            replay.tail(spec, checkpoint.offsets[topic][1], log_range.end)
    stores.write({}, _checkpoint_at_end(request, stores))


def _rebuild(request: RestoreRequest) -> TaskStores:
    building = request.path.with_name(f"{request.path.name}.restoring")
    shutil.rmtree(building, ignore_errors=True)
    building.parent.mkdir(parents=True, exist_ok=True)
    stores = TaskStores(request.topology, building, request.options)
    try:
        replay = _replayer(request, stores)
        for spec in request.topology.stores:
            log_range = request.logs[changelog_topic(request.topology.app, spec.name)]
            if spec.backend != "memory":
                replay.full(spec, log_range.start, log_range.end)
        stores.write({}, _checkpoint_at_end(request, stores))
        stores.rocks.flush()
    finally:
        stores.close()
    building.rename(request.path)
    stores = TaskStores(request.topology, request.path, request.options)
    try:
        replay = _replayer(request, stores)
        for spec in request.topology.stores:
            if spec.backend == "memory":
                log_range = request.logs[changelog_topic(request.topology.app, spec.name)]
                replay.tail(spec, log_range.start, log_range.end)
    except BaseException:
        stores.close()  # its lock would keep the next attempt out
        raise
    return stores


def _replayer(request: RestoreRequest, stores: TaskStores) -> Replay:
    app, clock = request.topology.app, request.marker.clock
    return Replay(request.kafka, app, request.partition, stores, request.listener, clock)


def _checkpoint_at_end(request: RestoreRequest, stores: TaskStores) -> Checkpoint:
    offsets = {topic: [r.topic_id, r.end] for topic, r in request.logs.items()}
    return Checkpoint(request.marker, offsets, stores.layouts)
