"""Which snapshots there are: only what is complete is listed (invariant 7)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import structlog

from state_lib.errors import HoldfastError, NotFound, SnapshotInvalid, StorageUnavailable
from state_lib.snapshots.manifest import FileEntry, Manifest, check_id, is_id, parse
from state_lib.snapshots.parallel import Progress, each, silent
from state_lib.snapshots.storage import Storage, Stored

log = structlog.get_logger(__name__)
MANIFESTS, FILES = "manifests", "files"
_BAD = ".bad"


@dataclass(frozen=True)
class Found:
    """A manifest in storage.

    It is listed if it could be read (else ``error`` says why not) and no file of it is missing.
    """

    id: str
    stored: Stored
    manifest: Manifest | None
    error: SnapshotInvalid | None
    missing: tuple[str, ...] = ()

    @property
    def listed(self) -> Manifest | None:
        """The manifest, if the snapshot is complete."""
        return None if self.missing else self.manifest


def manifest_name(snapshot: str) -> str:
    """Where the manifest of an id lies."""
    return f"{MANIFESTS}/{snapshot}.json"


def file_name(file: FileEntry) -> str:
    """Where a file's content lies."""
    return f"{FILES}/{file.sha256}"


def task_storage(url: str, app: str, partition: int) -> Storage:
    """The part of storage that is one task's."""
    return Storage(url, app, str(partition))


def stored_tasks(url: str, app: str) -> list[int]:
    """Partitions of an application that storage holds anything of."""
    return sorted(int(f) for f in Storage(url, app).folders() if f.isascii() and f.isdecimal())


def list_snapshots(url: str, app: str, partition: int) -> list[Manifest]:
    """The snapshots of a task, newest first; what is not whole, or not its own, is left out.

    Raises:
        StorageUnavailable: naming the URL.
    """
    found = survey(task_storage(url, app, partition), app, partition)
    unlisted(found)
    return [one.listed for one in found if one.listed is not None]


def find(url: str, app: str, partition: int, snapshot: str) -> Manifest:
    """One snapshot.

    Raises:
        NotFound: there is none of that id.
        SnapshotInvalid: there is, and it cannot be used.
    """
    storage = task_storage(url, app, partition)
    raw = storage.read(manifest_name(check_id(snapshot)))
    if raw is None:
        known = [m.id for m in list_snapshots(url, app, partition)]
        raise NotFound(
            f"there is no snapshot {snapshot} of {app}/{partition} in {url}; there are: {known}",
            snapshot=snapshot,
            known=known,
        )
    manifest = parse(raw, snapshot, app, partition, url)
    problems = problems_by_size(manifest, storage.listing(FILES))
    if problems:
        raise incomplete(manifest, problems)
    return manifest


def taken_for(url: str, app: str, partition: int, request: str) -> Manifest | None:
    """The snapshot of a task that was taken at somebody's request, if it is listed.

    Raises:
        StorageUnavailable: naming the URL.
    """
    found = survey(task_storage(url, app, partition), app, partition)
    listed = (one.listed for one in found)
    return next((m for m in listed if m is not None and request in m.requests), None)


def survey(storage: Storage, app: str, partition: int) -> list[Found]:
    """Every manifest of a task, newest first, whether or not it can be used."""
    names = storage.listing(MANIFESTS).items()
    stored = {n.removesuffix(".json"): at for n, at in names if is_id(n.removesuffix(".json"))}
    url = storage.url.removesuffix(f"/{app}/{partition}")

    def read(snapshot: str) -> Found | None:
        raw = storage.read(manifest_name(snapshot))
        if raw is None:
            return None  # pruned meanwhile
        try:
            manifest = parse(raw, snapshot, app, partition, url)
        except SnapshotInvalid as error:
            return Found(snapshot, stored[snapshot], None, error)
        return Found(snapshot, stored[snapshot], manifest, None)

    found = [f for f in each(read, sorted(stored, reverse=True), lambda _: None) if f is not None]
    present = storage.listing(FILES) if found else {}  # last: files are written first
    return [
        one
        if one.manifest is None
        else replace(one, missing=tuple(problems_by_size(one.manifest, present)))
        for one in found
    ]


def unlisted(found: Sequence[Found]) -> dict[str, str]:
    """Id → why, of what is left out of a list; the log has it as well."""
    reasons = {one.id: why_not_listed(one) for one in found if one.listed is None}
    for snapshot, why in reasons.items():
        log.warning("a snapshot is not listed", snapshot=snapshot, why=why)
    return reasons


def why_not_listed(found: Found) -> str:
    """In words."""
    if found.error is not None:
        return found.error.message
    return "; ".join(found.missing[:3])


def problems_by_size(manifest: Manifest, present: Mapping[str, Stored]) -> list[str]:
    """Files that are missing or have another size, in words."""
    out = []
    for file in manifest.files:
        at = present.get(file.sha256)
        if at is None:
            aside = f"was changed, and is set aside as {FILES}/{file.sha256}{_BAD}"
            what = aside if f"{file.sha256}{_BAD}" in present else "is missing"
            out.append(f"{file.name} ({FILES}/{file.sha256}) {what}")
        elif at.size != file.size:
            out.append(
                f"{file.name} ({FILES}/{file.sha256}) has {at.size} bytes instead of {file.size}"
            )
    return out


def verify(manifest: Manifest, *, deep: bool = False, report: Progress = silent) -> list[str]:
    """What is wrong with a snapshot, in words; nothing if it is whole.

    Args:
        manifest: of it.
        deep: read everything and compare SHA-256, instead of sizes alone; see `set_aside` for what
            becomes of a file that differs.
        report: called with the bytes read.
    """
    storage = task_storage(manifest.url, manifest.app, manifest.partition)
    problems = problems_by_size(manifest, storage.listing(FILES))
    if problems or not deep:
        return problems
    done = 0

    def read(file: FileEntry) -> str | None:
        seen = storage.sha256(file_name(file))
        if seen is None:
            return f"{file.name} ({file_name(file)}) is missing"
        return None if seen == file.sha256 else changed(storage, file, seen)

    def count(file: FileEntry) -> None:
        nonlocal done
        done += file.size
        report("verify", done, manifest.size_bytes)

    return [problem for problem in each(read, manifest.files, count) if problem is not None]


def changed(storage: Storage, file: FileEntry, seen: str) -> str:
    """The problem of a file that was read and is not what names it, in words; it is set aside.

    Else every later snapshot would use it again, by its name and size. No snapshot that names it is
    whole from then on, and the next one uploads it again.

    Args:
        storage: of the task.
        file: as the manifest has it.
        seen: the SHA-256 of what was read.
    """
    name = file_name(file)
    problem = f"{file.name} ({name}) was changed: its SHA-256 is {seen}"
    try:
        if storage.sha256(name) in (None, file.sha256):
            return f"{problem}; read again it is not: look at the network and this machine's memory"
        storage.rename(name, f"{name}{_BAD}")
    except StorageUnavailable as error:
        return f"{problem}; it could not be set aside: {error.message}"
    return f"{problem}; it is set aside as {name}{_BAD}, and the next snapshot uploads it anew"


def incomplete(manifest: Manifest, problems: list[str]) -> HoldfastError:
    """The error of a snapshot that is not whole."""
    return SnapshotInvalid(
        f"snapshot {manifest.id} of {manifest.task} in {manifest.url} is not whole: "
        f"{'; '.join(problems[:3])}; take another one",
        snapshot=manifest.id,
        task=manifest.task,
        url=manifest.url,
        problems=problems,
    )
