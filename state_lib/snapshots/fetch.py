"""Brings a snapshot into a directory: what this machine has already is linked, by content."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from threading import Lock

from state_lib.errors import Unavailable
from state_lib.failpoints import failpoint
from state_lib.snapshots.listing import changed, file_name, incomplete, task_storage
from state_lib.snapshots.manifest import FileEntry, Manifest
from state_lib.snapshots.parallel import Progress, each, sha256, silent

MIN_FREE_BYTES = 32 << 20
_IMMUTABLE = ".sst"


def fetch(
    manifest: Manifest,
    into: Path,
    have: Sequence[Path] = (),
    report: Progress = silent,
    *,
    memory: bool = False,
) -> None:
    """Make ``into`` what the snapshot was; every file's SHA-256 is checked.

    A directory left by an interrupted fetch is completed, not started again.

    Args:
        manifest: from `state_lib.snapshots.listing`.
        into: the directory; made if missing. Files that are not the snapshot's are removed.
        have: directories on the same disk that may hold some of the files: SST files in them are
            hard-linked if their content is the same, whatever their names.
        report: called with the bytes that are there.
        memory: also bring the entries of memory stores. For going back in time only: `TaskStores`
            would load them, and a task rebuilds its memory stores from their changelogs.

    Raises:
        StorageUnavailable: naming the URL; calling again goes on.
        SnapshotInvalid: a file is missing or has another content; see `listing.changed`.
        Unavailable: not enough disk; nothing was written.
    """
    files = [f for f in manifest.files if memory or not f.of_memory]
    with _local(into):
        into.mkdir(parents=True, exist_ok=True)
        _remove_strangers(into, files)
        local = _Local([into, *have])
    _check_room(manifest, into, files)
    storage = task_storage(manifest.url, manifest.app, manifest.partition)
    done, total = 0, sum(f.size for f in files)

    def bring(file: FileEntry) -> str | None:
        failpoint("snapshot.fetch")
        target = into / file.name
        with _local(into):
            if target.exists() and local.matches(target, file):
                return None
            target.unlink(missing_ok=True)
            target.parent.mkdir(parents=True, exist_ok=True)
            if local.link(file, target):
                return None
        partial = target.with_name(f"{target.name}.partial")
        if not storage.download(file_name(file), partial):
            return f"{file.name} ({file_name(file)}) is missing"
        seen = sha256(partial)
        if seen != file.sha256:
            partial.unlink()
            return changed(storage, file, seen)
        partial.replace(target)
        return None

    def count(file: FileEntry) -> None:
        nonlocal done
        done += file.size
        report("fetch", done, total)

    problems = [problem for problem in each(bring, files, count) if problem is not None]
    if problems:
        raise incomplete(manifest, problems)


class _Local:
    """SST files on this disk, found by content: size first, then SHA-256, each read once."""

    def __init__(self, directories: Sequence[Path]) -> None:
        self._by_size: Mapping[int, list[Path]] = defaultdict(list)
        self._hashes: dict[Path, str | None] = {}
        self._lock = Lock()
        for directory in directories:
            for path in directory.glob(f"*{_IMMUTABLE}"):
                with contextlib.suppress(OSError):  # an engine may remove it meanwhile
                    self._by_size[path.stat().st_size].append(path)

    def link(self, file: FileEntry, target: Path) -> bool:
        """Link a file of that content, if there is one."""
        if not file.name.endswith(_IMMUTABLE):
            return False
        for path in self._by_size.get(file.size, ()):
            if path != target and self.matches(path, file):
                try:
                    os.link(path, target)
                except OSError as error:
                    if error.errno in (errno.EXDEV, errno.ENOENT, errno.EPERM, errno.EMLINK):
                        continue  # another disk, or gone
                    raise
                return True
        return False

    def matches(self, path: Path, file: FileEntry) -> bool:
        """Whether it has that content."""
        with self._lock:
            known = path in self._hashes
        if not known:
            found = None
            with contextlib.suppress(OSError):
                found = sha256(path) if path.stat().st_size == file.size else None
            with self._lock:
                self._hashes[path] = found
        return self._hashes[path] == file.sha256


def _remove_strangers(into: Path, files: Sequence[FileEntry]) -> None:
    wanted = {into / f.name for f in files}
    for path in sorted(into.rglob("*"), reverse=True):
        if path.is_dir():
            with contextlib.suppress(OSError):
                path.rmdir()
        elif path not in wanted:
            path.unlink()


def _check_room(manifest: Manifest, into: Path, files: Sequence[FileEntry]) -> None:
    there = sum(p.stat().st_size for p in into.rglob("*") if p.is_file())
    needed = sum(f.size for f in files) - there + MIN_FREE_BYTES
    free = shutil.disk_usage(into).free
    if free < needed:
        raise Unavailable(
            f"disk under {into} has {free >> 20} MiB free, snapshot {manifest.id} needs "
            f"{needed >> 20} MiB: free space, then try again",
            free_bytes=free,
            needed_bytes=needed,
        )


@contextlib.contextmanager
def _local(into: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise Unavailable(
            f"cannot write to {into}: {error}; make room or allow it, then try again",
            path=str(into),
        ) from error
