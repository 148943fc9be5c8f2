"""Retention: which snapshots stay, and when the files of those that went may go.

Storage has no locks, so time keeps writers and collectors apart. A file goes only if no manifest
names it, none that was pruned within a day named it, and it is itself older than a day. A writer
re-uses a file only if a listed manifest names it or it is younger than twelve hours, and gives up
after twelve hours (`state_lib.snapshots.write`). So whatever it re-uses outlives it, even if all
that named it is pruned the moment after it looked. Prunings at the same time do the same twice.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from state_lib.errors import InvalidRequest, SnapshotInvalid
from state_lib.failpoints import failpoint
from state_lib.protocol.marker import now_ms
from state_lib.snapshots.listing import FILES, MANIFESTS, Found, manifest_name, survey, task_storage
from state_lib.snapshots.manifest import Manifest, parse
from state_lib.snapshots.storage import Storage, is_partial
from state_lib.specs import DAY_MS

PRUNED = "pruned"
SPARED_MS = DAY_MS


@dataclass(frozen=True)
class Retention:
    """What to keep of each task: the newest ``keep``, and the newest of each of ``daily`` days.

    Days are UTC, and only those count that have a snapshot. What was taken for a savepoint stays
    for a day at least: the savepoint may be about to be listed.

    Raises:
        InvalidRequest: ``keep`` is not at least 1, ``daily`` not at least 0.
    """

    keep: int
    daily: int = 0

    def __post_init__(self) -> None:
        if self.keep < 1 or self.daily < 0:
            raise InvalidRequest(
                f"keep {self.keep} and daily {self.daily} make no retention: keep at least the "
                "newest one, and 0 or more days"
            )

    def kept(self, newest_first: Sequence[Manifest]) -> list[Manifest]:
        """Those that stay."""
        days: dict[int, Manifest] = {}
        for manifest in newest_first:
            days.setdefault(manifest.created_at // DAY_MS, manifest)
        daily = {days[day].id for day in sorted(days, reverse=True)[: self.daily]}
        newest = {m.id for m in newest_first[: self.keep]}
        return [m for m in newest_first if m.id in newest | daily or _of_young_savepoint(m)]


def _of_young_savepoint(manifest: Manifest) -> bool:
    return manifest.savepoint is not None and now_ms() - manifest.created_at < SPARED_MS


@dataclass
class Pruned:
    """What a pruning did, or would do, with one task."""

    task: str
    kept: list[str] = field(default_factory=list)
    pruned: list[str] = field(default_factory=list)
    deleted_files: int = 0
    freed_bytes: int = 0
    not_collected: str | None = None


def prune(
    url: str,
    app: str,
    partition: int,
    retention: Retention,
    *,
    spare: Collection[str] = (),
    dry: bool = False,
) -> Pruned:
    """Unlist what the retention does not keep, then delete files that nobody needs any more.

    Args:
        url: of all snapshots.
        app: whose.
        partition: its task.
        retention: what to keep.
        spare: ids that stay whatever their age, those of savepoints.
        dry: change nothing.

    Raises:
        StorageUnavailable: running it again goes on from there.
    """
    storage = task_storage(url, app, partition)
    found = survey(storage, app, partition)
    listed = [f.listed for f in found if f.listed is not None]
    kept = {m.id for m in retention.kept(listed)} | set(spare)
    going = [f for f in found if f.id not in kept and _may_go(f)]
    outcome = Pruned(f"{app}/{partition}", [m.id for m in listed if m.id in kept])
    outcome.pruned = [f.id for f in going]
    if not dry:
        for one in going:
            _unlist(storage, one)
    try:
        old, expired = _collectable(storage, app, partition)
    except SnapshotInvalid as error:
        outcome.not_collected = error.message
        return outcome
    outcome.deleted_files, outcome.freed_bytes = len(old), sum(old.values())
    if not dry:
        for name in (*old, *expired):
            failpoint("snapshot.collect")
            storage.delete([name])
    return outcome


def put_back(url: str, app: str, partition: int, snapshot: str) -> bool:
    """List a snapshot again that was pruned within a day: its files are there still.

    Returns:
        Whether it was not listed, and is now.

    Raises:
        StorageUnavailable: a retry goes on from there.
    """
    storage = task_storage(url, app, partition)
    name, beside = manifest_name(snapshot), f"{PRUNED}/{snapshot}.json"
    content = storage.read(beside)
    if content is None:
        return False
    again = storage.read(name) is None
    storage.write(name, content)
    storage.delete([beside])
    return again


def _may_go(found: Found) -> bool:
    """Not what a newer version wrote; nor what is being written or is torn, until it is old."""
    if found.listed is not None:
        return True
    newer = found.error is not None and found.error.details.get("newer")
    return not newer and found.stored.age_ms > SPARED_MS


def _unlist(storage: Storage, found: Found) -> None:
    """Move a manifest to the pruned ones, which still protect its files for a day."""
    name = manifest_name(found.id)
    content = storage.read(name)
    if content is None:
        return
    beside = f"{PRUNED}/{found.id}.json"
    storage.write(beside, content)
    failpoint("snapshot.prune")
    storage.delete([name])
    storage.write(beside, content)  # again: its age counts from the removal from the list


def _collectable(storage: Storage, app: str, partition: int) -> tuple[dict[str, int], list[str]]:
    """Files that nobody needs any more, with their sizes; and records of prunings long past.

    Raises:
        SnapshotInvalid: a newer version keeps snapshots here too: what they need is unknown.
    """
    present = storage.listing(FILES)  # first: later files are no candidates
    found = survey(storage, app, partition)  # before the pruned ones: manifests move there
    for one in found:
        if one.error is not None and one.error.details.get("newer"):
            raise one.error
    needed = {file.sha256 for one in found if one.manifest for file in one.manifest.files}
    expired = []
    for name, stored in storage.listing(PRUNED).items():
        if stored.age_ms > SPARED_MS:
            expired.append(f"{PRUNED}/{name}")
        else:
            needed |= _named_by(storage, name, app, partition)
    partial = storage.listing(MANIFESTS).items()
    expired += [f"{MANIFESTS}/{n}" for n, s in partial if is_partial(n) and s.age_ms > SPARED_MS]
    old = {
        f"{FILES}/{name}": stored.size
        for name, stored in present.items()
        if name not in needed and stored.age_ms > SPARED_MS
    }
    return old, expired


def _named_by(storage: Storage, name: str, app: str, partition: int) -> set[str]:
    """What a pruned manifest named; one that could not be read protects nothing."""
    raw = storage.read(f"{PRUNED}/{name}") or b""
    try:
        manifest = parse(raw, name.removesuffix(".json"), app, partition, storage.url)
    except SnapshotInvalid:
        return set()
    return {file.sha256 for file in manifest.files}
