"""From a checkpoint on local disk to a listed snapshot.

Safe beside other snapshots and beside collection, because nothing is ever taken for granted that a
collector might be about to remove: see `_reusable` and `state_lib.snapshots.prune`.
"""

from __future__ import annotations

import platform
import time
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

from state_lib.errors import StorageUnavailable, Unavailable
from state_lib.failpoints import failpoint
from state_lib.protocol.marker import now_ms
from state_lib.snapshots.inspect import inspect_aside
from state_lib.snapshots.listing import (
    FILES,
    file_name,
    incomplete,
    manifest_name,
    problems_by_size,
    survey,
    task_storage,
)
from state_lib.snapshots.manifest import FileEntry, Manifest, new_id, parse
from state_lib.snapshots.parallel import Progress, each, silent
from state_lib.snapshots.storage import Storage
from state_lib.specs import Topology

PATIENCE_S = 12 * 3600
"""A snapshot that takes longer gives up: collection spares what it re-uses for a day only."""
_YOUNG_MS = 12 * 3600 * 1000


@dataclass(frozen=True)
class SnapshotRequest:
    """A checkpoint to upload: its directory, whose it is, and who asks."""

    url: str
    topology: Topology
    partition: int
    directory: Path
    host: str = ""
    savepoint: str | None = None
    requests: tuple[str, ...] = ()


@dataclass(frozen=True)
class Written:
    """A listed snapshot, and how much of it had to be uploaded."""

    manifest: Manifest
    uploaded_bytes: int


def write_snapshot(request: SnapshotRequest, report: Progress = silent) -> Written:
    """Digest, hash, upload what storage lacks, verify, list. Nothing is listed on an error.

    Raises:
        StorageUnavailable: naming the URL; trying again re-uses what was uploaded.
        StateCorrupt: the checkpoint cannot be read.
        Unavailable: the task is being restored to the past.
    """
    app, partition = request.topology.app, request.partition
    storage = task_storage(request.url, app, partition)
    held, files = inspect_aside(request.directory, request.topology, report)
    if held.checkpoint.marker.state != "running":
        raise Unavailable(
            f"{app}/{partition} is being restored to the past: it has no state of its own until "
            "that is done; ask again then",
            state=held.checkpoint.marker.state,
        )
    started = time.monotonic()
    uploaded = _upload(storage, request, files, report)
    if time.monotonic() - started > PATIENCE_S:
        raise StorageUnavailable(
            f"the snapshot of {app}/{partition} took longer than {PATIENCE_S // 3600} h to reach "
            f"{storage.url}: ask again; what was uploaded is used",
            url=storage.url,
        )
    manifest = Manifest(
        id=new_id(now_ms()),
        app=app,
        partition=partition,
        marker=held.checkpoint.marker,
        offsets=held.checkpoint.offsets,
        layouts=held.checkpoint.layouts,
        stores=request.topology.stores,
        files=tuple(files),
        digests=held.digests,
        created_at=now_ms(),
        host=request.host,
        savepoint=request.savepoint,
        requests=request.requests,
        partitions=request.topology.partitions,
        versions=_versions(),
        url=request.url,
    )
    failpoint("snapshot.before_manifest")
    _list(storage, manifest)
    failpoint("snapshot.after_manifest")
    return Written(manifest, uploaded)


def _upload(
    storage: Storage, request: SnapshotRequest, files: list[FileEntry], report: Progress
) -> int:
    """Upload what storage lacks; returns bytes. Afterwards storage holds every file, by size."""
    usable = _reusable(storage, request)
    missing = {f.sha256: f for f in files if usable.get(f.sha256) != f.size}
    done, total = 0, sum(f.size for f in missing.values())
    report("upload", 0, total)

    def upload(file: FileEntry) -> None:
        failpoint("snapshot.upload")
        storage.upload(request.directory / file.name, file_name(file))

    def count(file: FileEntry) -> None:
        nonlocal done
        done += file.size
        report("upload", done, total)

    each(upload, missing.values(), count)
    return total


def _reusable(storage: Storage, request: SnapshotRequest) -> dict[str, int]:
    """SHA-256 → size of what storage holds and keeps for longer than a snapshot may take.

    Collection spares, for a day more, what a listed manifest names and what is new: an old file
    that no manifest names is uploaded again, and thereby new.
    """
    listed = [f.listed for f in survey(storage, request.topology.app, request.partition)]
    named = {file.sha256 for one in listed if one is not None for file in one.files}
    return {
        name: stored.size
        for name, stored in storage.listing(FILES).items()
        if name in named or stored.age_ms < _YOUNG_MS
    }


def _list(storage: Storage, manifest: Manifest) -> None:
    """Verify the files, then write the manifest: from then on the snapshot is listed."""
    problems = problems_by_size(manifest, storage.listing(FILES))
    if problems:
        raise incomplete(manifest, problems)
    name, content = manifest_name(manifest.id), manifest.to_bytes()
    storage.write(name, content)
    parse(storage.read(name) or b"", manifest.id, manifest.app, manifest.partition, manifest.url)


def _versions() -> dict[str, str]:
    found = {name: version(name) for name in ("holdfast", "rocksdict")}
    return {**found, "python": platform.python_version()}
