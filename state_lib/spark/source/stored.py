"""Snapshots in storage. Neither hosts nor Kafka are needed; each task is fetched to be read."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

from state_lib.errors import InvalidRequest, NotFound, SnapshotInvalid
from state_lib.scratch import scratch
from state_lib.snapshots.fetch import fetch
from state_lib.snapshots.listing import find, list_snapshots, stored_tasks
from state_lib.snapshots.manifest import Manifest, check_id
from state_lib.snapshots.savepoints import list_savepoints
from state_lib.spark.source.partitions import Cut, TaskPartition
from state_lib.specs import StoreSpec, Topology
from state_lib.stores.columns import Columns, columns, live, selected
from state_lib.stores.interfaces import BytesStore
from state_lib.stores.rocksdb.options import RocksDBOptions
from state_lib.stores.task_stores import TaskStores

LATEST = "latest"
_OPTIONS = RocksDBOptions(block_cache_bytes=32 << 20, write_budget_bytes=1 << 20)


@dataclass(frozen=True)
class StoredPartition(TaskPartition):
    """A task's snapshot: its ``url`` and id."""

    url: str
    snapshot: str

    @contextmanager
    def opened(self) -> Iterator[Cut]:
        """See `TaskPartition`; the snapshot lies in a temporary directory meanwhile.

        Raises:
            NotFound, SnapshotInvalid: it went meanwhile, or is damaged.
            StorageUnavailable: naming the URL.
            Unavailable: too little room.
        """
        manifest = find(self.url, self.app, self.task, self.snapshot)
        spec = spec_in(manifest, self.store)
        held = Topology(self.app, self.task + 1, manifest.stores)
        with scratch("holdfast-read-", _room()) as made:
            path = made / "state"
            fetch(manifest, path, memory=spec.backend == "memory")
            with closing(TaskStores(held, path, _OPTIONS, read_only=True)) as stores:
                marker = manifest.marker
                with selected(stores.stores[self.store], self.keys) as entries:
                    parts = _live(stores.stores[self.store], entries, marker.stream_time_ms)
                    yield Cut(marker, manifest.id, parts)


def choose(url: str, app: str, wanted: str) -> list[Manifest]:
    """The snapshot of each task, by partition; all tasks have one.

    Args:
        url: of the storage.
        app: application.
        wanted: id of a savepoint, or of a snapshot of the only task; or `LATEST`, of each task.

    Raises:
        NotFound: there is none, or none of a task.
        InvalidRequest: no id, or that of one task among several.
        SnapshotInvalid: it cannot be used, or is of another application than the others.
        StorageUnavailable: naming the URL.
    """
    stored = stored_tasks(url, app)
    if wanted == LATEST:
        newest = {task: found[0] for task in stored if (found := list_snapshots(url, app, task))}
        return _complete(url, app, newest)
    check_id(wanted)
    for savepoint in list_savepoints(url, app):
        if savepoint.id == wanted:
            return [find(url, app, task, one) for task, one in enumerate(savepoint.snapshots)]
    for task in stored:
        if any(one.id == wanted for one in list_snapshots(url, app, task)):
            only = find(url, app, task, wanted)
            if only.partitions == 1:
                return [only]
            raise InvalidRequest(
                f"snapshot {wanted} is of task {only.task} alone, and {app!r} has "
                f"{only.partitions or 'other'} tasks: name a savepoint, which has all of them "
                f"(`holdfast snapshot list {app}`), or {LATEST!r}",
                snapshot=wanted,
                task=only.task,
            )
    raise NotFound(
        f"there is no savepoint or snapshot {wanted} of {app!r} in {url}: `holdfast snapshot list "
        f"{app}` shows those that there are",
        snapshot=wanted,
        url=url,
    )


def spec_of(manifests: Sequence[Manifest], store: str) -> StoreSpec:
    """What a store is in all of these snapshots.

    Raises:
        NotFound: one has no such store; lists those that it has.
        SnapshotInvalid: they do not agree.
    """
    specs = [spec_in(manifest, store) for manifest in manifests]
    for manifest, spec in zip(manifests, specs, strict=True):
        if _meaning(spec) != _meaning(specs[0]):
            raise SnapshotInvalid(
                f"store {store!r} is {_meaning(spec)} in snapshot {manifest.id} of "
                f"{manifest.task}, and {_meaning(specs[0])} in {manifests[0].id} of "
                f"{manifests[0].task}: take new snapshots, or name a savepoint",
                store=store,
            )
    return specs[0]


def spec_in(manifest: Manifest, store: str) -> StoreSpec:
    """What a store is in a snapshot. Raises NotFound."""
    for spec in manifest.stores:
        if spec.name == store:
            return spec
    known = [spec.name for spec in manifest.stores]
    raise NotFound(
        f"snapshot {manifest.id} of {manifest.task} has no store {store!r}; its stores: {known}",
        store=store,
        known=known,
    )


def _complete(url: str, app: str, newest: dict[int, Manifest]) -> list[Manifest]:
    """All tasks' by partition; a part of an application would look like all of it.

    Storage keeps snapshots of an application that was reset or deleted. The newest of all says how
    many tasks there are and which changelogs they have; snapshots of other ones are refused.
    """
    if not newest:
        raise NotFound(
            f"there is no snapshot of {app!r} in {url}: `holdfast snapshot create {app}`, or "
            "correct HOLDFAST_SNAPSHOTS_URL",
            app=app,
            url=url,
        )
    last = max(newest.values(), key=lambda manifest: manifest.id)
    partitions = last.partitions
    if partitions == 0:
        raise SnapshotInvalid(
            f"the snapshots of {app!r} in {url} are of an older version, which did not say how "
            f"many tasks there are: `holdfast snapshot create {app}`",
            app=app,
            url=url,
        )
    if missing := [task for task in range(partitions) if task not in newest]:
        raise NotFound(
            f"there is no snapshot of tasks {missing} of {app!r} in {url}: `holdfast snapshot "
            f"create {app}`",
            app=app,
            url=url,
            tasks=missing,
        )
    found = [newest[task] for task in range(partitions)]
    if other := [m.partition for m in found if _is_of_another(m, last)]:
        raise SnapshotInvalid(
            f"the newest snapshots of tasks {other} of {app!r} in {url} are of other changelogs "
            f"than {last.id} of {last.task}: the application was reset, or a changelog rebuilt, "
            f"since they were taken: `holdfast snapshot create {app}`, or name a savepoint",
            app=app,
            url=url,
            tasks=other,
        )
    return found


def _is_of_another(manifest: Manifest, last: Manifest) -> bool:
    """Whether it is of an application of the same name that was there before."""
    both = manifest.offsets.keys() & last.offsets.keys()
    ids = [(manifest.offsets[topic][0], last.offsets[topic][0]) for topic in both]
    return manifest.partitions != last.partitions or any(one != other for one, other in ids)


def _live(
    store: BytesStore, entries: Iterator[tuple[bytes, bytes]], clock: int
) -> Iterator[Columns]:
    for part in columns(entries):
        lives = live(store.spec, part, clock)
        if len(lives.keys):
            yield lives


def _meaning(spec: StoreSpec) -> tuple[object, ...]:
    return spec.kind, spec.key_serde, spec.value_serde, spec.window_size_ms


def _room() -> str | None:
    """Where Spark has room on this machine; None: where the system has."""
    folders = os.environ.get("SPARK_LOCAL_DIRS", "").split(",")
    return next((folder for folder in folders if folder and Path(folder).is_dir()), None)
