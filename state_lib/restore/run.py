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
from state_lib.restore.source import LogRange, why_not_valid
from state_lib.specs import Topology
from state_lib.stores.rocksdb.options import RocksDBOptions
from state_lib.stores.task_stores import Checkpoint, TaskStores

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
    reason = None
    if request.path.exists():
        stores = None
        try:
            stores = TaskStores(request.topology, request.path, request.options)
            reason = why_not_valid(stores.checkpoint(), request.logs)
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
    aside = set_aside(request.path) if request.path.exists() else None
    stores = _rebuild(request)
    if aside is not None:
        shutil.rmtree(aside, ignore_errors=True)
    return stores


def set_aside(path: Path) -> Path:
    """Rename a directory that must not be used again; returns its new place."""
    aside = path.with_name(f"{path.name}.aside-{time.time_ns()}")
    path.rename(aside)
    return aside


def _replay_local(request: RestoreRequest, stores: TaskStores) -> None:
    checkpoint = stores.checkpoint()
    known = {} if checkpoint is None else checkpoint.offsets
    replay = _replayer(request, stores)
    for spec in request.topology.stores:
        topic = changelog_topic(request.topology.app, spec.name)
        log_range = request.logs[topic]
        if spec.backend == "memory":
            replay.tail(spec, log_range.start, log_range.end)
        elif topic not in known:
            replay.full(spec, log_range.start, log_range.end)
        else:
            replay.tail(spec, known[topic][1], log_range.end)
    stores.write({}, _checkpoint_at_end(request))


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
        stores.write({}, _checkpoint_at_end(request))
        stores.rocks.flush()
    finally:
        stores.close()
    building.rename(request.path)
    stores = TaskStores(request.topology, request.path, request.options)
    replay = _replayer(request, stores)
    for spec in request.topology.stores:
        if spec.backend == "memory":
            log_range = request.logs[changelog_topic(request.topology.app, spec.name)]
            replay.tail(spec, log_range.start, log_range.end)
    return stores


def _replayer(request: RestoreRequest, stores: TaskStores) -> Replay:
    return Replay(request.kafka, request.topology.app, request.partition, stores, request.listener)


def _checkpoint_at_end(request: RestoreRequest) -> Checkpoint:
    return Checkpoint(
        request.marker, {topic: [r.topic_id, r.end] for topic, r in request.logs.items()}
    )
