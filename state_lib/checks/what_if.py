"""What other settings would keep and cost: bytes in changelogs and snapshots, seconds to restore.

Estimates for people, from what was measured: nothing depends on them. Bytes of changelogs are of
one replica and before compression; those of snapshots are of live entries: files hold up to twice
as much until RocksDB merges them, and take as much longer to fetch.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from math import inf

from state_lib.checks.compaction import PACKED, RECORD_BYTES

_REWRITTEN = 2.0
"""Bytes of files that change for each byte that is written: RocksDB's own compaction."""


@dataclass(frozen=True)
class StoreMeasured:
    """One store, over all tasks.

    Attributes:
        store: its name.
        partitions: of its changelog.
        live: entries.
        biggest: share of them in the largest task.
        record_bytes: mean of key and value.
        log_records: in the changelog, in all partitions.
        per_s: records that were written to it, in a second of wall time.
        deletes: share of records that are deletes.
        window_ms: the store's own retention; 0 unless it is one of windows.
        retention_ms: of the changelog, -1 for ever; only of windows.
        delete_retention_ms, segment_bytes, segment_ms, dirty_ratio: of the changelog.
    """

    store: str
    partitions: int
    live: int
    biggest: float
    record_bytes: float
    log_records: float
    per_s: float
    deletes: float
    window_ms: int
    retention_ms: int
    delete_retention_ms: int
    segment_bytes: int
    segment_ms: int
    dirty_ratio: float

    @property
    def entry_bytes(self) -> float:
        """In a log, of one record."""
        return self.record_bytes + RECORD_BYTES


@dataclass(frozen=True)
class Rates:
    """How fast one task is restored; ``seen``: restores that they come from, 0: of a benchmark."""

    full_records_per_s: float
    tail_records_per_s: float
    fetch_bytes_per_s: float
    open_s: float
    seen: int = 0


@dataclass(frozen=True)
class Choice:
    """What would be set; None: as it is."""

    snapshot_every_ms: int
    keep: int = 1
    delete_retention_ms: int | None = None
    retention_ms: int | None = None

    def applied(self, store: StoreMeasured) -> StoreMeasured:
        """The store's measures under it."""
        kept = self.delete_retention_ms
        if kept is not None:
            store = replace(store, delete_retention_ms=kept)
        if self.retention_ms is not None and store.window_ms:
            store = replace(store, retention_ms=self.retention_ms)
        return store


@dataclass(frozen=True)
class Outcome:
    """Bytes kept, and seconds until the largest task is open again.

    ``changelog_bytes`` is infinite where nothing ever goes.
    """

    changelog_bytes: float
    snapshot_bytes: float
    from_snapshot_s: float
    from_changelog_s: float


def what_if(stores: Iterable[StoreMeasured], rates: Rates, choice: Choice) -> Outcome:
    """Under a choice."""
    found = [choice.applied(s) for s in stores]
    interval_s = choice.snapshot_every_ms / 1000
    whole = sum(s.live * s.entry_bytes for s in found)
    changed = sum(s.per_s * interval_s * s.entry_bytes * _REWRITTEN for s in found)
    tail = sum(s.per_s * s.biggest * interval_s for s in found)
    fetched = sum(s.live * s.biggest * s.entry_bytes for s in found)
    replayed = sum(s.log_records * s.biggest for s in found)
    return Outcome(
        sum(kept_bytes(s) for s in found),
        whole + (choice.keep - 1) * min(whole, changed),
        rates.open_s + fetched / rates.fetch_bytes_per_s + tail / rates.tail_records_per_s,
        rates.open_s + replayed / rates.full_records_per_s,
    )


def kept_bytes(store: StoreMeasured) -> float:
    """In a changelog that is cleaned as it should be: live, dirt, the last segment, deletions."""
    live = store.live * store.entry_bytes
    if store.window_ms:
        if store.retention_ms == -1:
            return inf
        live *= max(1.0, store.retention_ms / store.window_ms)
    written = store.per_s * store.entry_bytes
    last = min(PACKED * store.segment_bytes * store.partitions, written * store.segment_ms / 1000)
    deleted = store.per_s * store.deletes * store.entry_bytes * store.delete_retention_ms / 1000
    return live / (1 - min(store.dirty_ratio, 0.9)) + last + deleted
