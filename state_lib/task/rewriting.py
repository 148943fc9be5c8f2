"""The second half of a restore to the past: writes differences, then the marker that ends it.

The marker (`state_lib.task.past`) has the request, so any opening of the task finishes it.
Differences are written in transactions of their own; after an interruption they are computed again,
against the changelogs of then. Nobody reads before the end, as the task is not open.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path

import structlog

from state_lib.changelog.log import CommitLog, LogRange, Writer
from state_lib.changelog.topics import changelog_topic
from state_lib.changelog.writer import Records
from state_lib.errors import StateCorrupt
from state_lib.failpoints import failpoint
from state_lib.keys import split_timestamp
from state_lib.protocol.marker import RUNNING, Marker, now_ms
from state_lib.restore.differences import Difference, differences, forgotten
from state_lib.restore.facts import log_ranges
from state_lib.restore.listener import RestoreListener
from state_lib.restore.local import asides
from state_lib.restore.past import check_stores
from state_lib.snapshots.fetch import fetch
from state_lib.snapshots.listing import find
from state_lib.snapshots.manifest import Manifest
from state_lib.specs import StoreSpec, Topology
from state_lib.stores.digest import store_digest
from state_lib.stores.interfaces import BytesStore
from state_lib.stores.rocksdb.options import RocksDBOptions
from state_lib.stores.task_stores import Checkpoint, TaskStores
from state_lib.task.retention import lift_retention

log = structlog.get_logger(__name__)
CHUNK_RECORDS, CHUNK_BYTES = 50_000, 8 << 20
"""Bounds of one transaction, and so of memory."""
_OPTIONS = RocksDBOptions(block_cache_bytes=32 << 20, write_budget_bytes=1 << 20)
Chunk = tuple[list[bytes], list[bytes | None]]


@dataclass(frozen=True)
class Rewriting:
    """The rewriting of one task that is being opened.

    Attributes:
        log, topology, partition, path, listener: of the task.
        url: of the storage of snapshots.
        check: called regularly; it raises to interrupt, and the next opening goes on.
    """

    log: CommitLog
    topology: Topology
    partition: int
    path: Path
    listener: RestoreListener
    url: str
    check: Callable[[], None]

    @property
    def name(self) -> str:
        """``<app>/<partition>``."""
        return f"{self.topology.app}/{self.partition}"

    @property
    def folder(self) -> Path:
        """The directory that the snapshot is fetched to."""
        return self.path.with_name(f"{self.path.name}.past")

    def bring(self, snapshot: str) -> Manifest:
        """Fetch the snapshot, memory stores too; files that are there already are used.

        Raises:
            NotFound, SnapshotInvalid: there is none, or it is damaged.
            StorageUnavailable: names the URL.
            Unavailable: not enough disk.
        """
        manifest = find(self.url, self.topology.app, self.partition, snapshot)

        def report(_phase: str, done: int, total: int) -> None:
            self.listener.on_snapshot_fetched(self.name, done, total)
            self.check()

        have = [p for p in (self.path, *asides(self.path)) if p.exists()]
        fetch(manifest, self.folder, have, report, memory=True)
        failpoint("past.after_fetch")
        return manifest

    def forget(self) -> None:
        """Remove the fetched snapshot."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def finish(
        self,
        writer: Writer,
        marker: Marker,
        stores: TaskStores,
        write_marker: Callable[[Marker], None],
    ) -> Marker:
        """Bring changelogs and stores to the state of the snapshot that a marker names.

        Args:
            writer: of the task; it has fenced all others.
            marker: the newest, with state restoring.
            stores: the task's, equal to its changelogs.
            write_marker: commits the final marker.

        Returns:
            The final marker, which the stores are at.

        Raises:
            StateCorrupt: the stores differ from the snapshot; the restore is not finished.
            InvalidRequest: stores were declared otherwise since the snapshot.
            Others: as `bring`, and as the writer.
        """
        manifest = self.bring(marker.back["snapshot"])
        check_stores(self.topology, manifest)  # a driver may have declared others since then
        held = {s.name: s for s in manifest.stores}
        specs = tuple(held.get(s.name, s) for s in self.topology.stores)
        past = TaskStores(
            replace(self.topology, stores=specs), self.folder, _OPTIONS, read_only=True
        )
        try:
            logs = log_ranges(self.log, self.topology, self.partition)
            ends = {}
            for spec in self.topology.stores:
                end = self._rewrite(writer, stores, past.stores[spec.name], logs, marker, manifest)
                if end is not None:
                    ends[self._topic(spec)] = end
            final = _at(manifest.marker, marker, ends)
            failpoint("past.before_marker")
            write_marker(final)
            failpoint("past.after_marker")
            self._remember(stores, past, final, ends)
        finally:
            past.close()
        failpoint("past.after_checkpoint")
        self.forget()
        log.info("restored to the past", task=self.name, snapshot=manifest.id, epoch=final.epoch)
        return final

    # ------------------------------------------------------------------ inside

    def _topic(self, spec: StoreSpec) -> str:
        return changelog_topic(self.topology.app, spec.name)

    def _rewrite(
        self,
        writer: Writer,
        stores: TaskStores,
        past: BytesStore,
        logs: dict[str, LogRange],
        marker: Marker,
        manifest: Manifest,
    ) -> int | None:
        """Write the differences; returns the offset after the last, or None if there are none."""
        live = stores.stores[past.spec.name]
        spec, now, then = live.spec, marker.stream_time_ms, manifest.marker.stream_time_ms
        topic, told = self._topic(spec), f"{spec.name}, back in time"
        found = differences(live, past, now, then)
        if spec.is_window:
            lift_retention(self.log, topic)
            if then < now:
                found = chain(found, self._only_in_log(live, past, logs[topic], now, then))
        self.listener.on_restore_start(self.name, told, 0, _entries(stores, spec))
        done, end = 0, None
        for keys, values in _chunks(found):
            self.check()
            end = writer.write_part(_records(topic, spec, keys, values))
            if spec.backend != "memory":  # memory stores are filled at the end
                stores.write({spec.name: (keys, values)}, None)
            done += len(keys)
            self.listener.on_batch_restored(self.name, told, len(keys), done)
            failpoint("past.after_chunk")
        self.listener.on_restore_end(self.name, told, done)
        if spec.backend != "memory":
            self._verify(live, past, then)
        return end

    def _only_in_log(
        self, live: BytesStore, past: BytesStore, there: LogRange, now: int, then: int
    ) -> Iterator[Difference]:
        """Deletions of windows that only the log has, and that would be live again."""
        wanted = forgotten(live, now, then)
        topic = self._topic(live.spec)
        for messages in self.log.read(topic, self.partition, there.start, there.end):
            keys = sorted({key for m in messages if wanted(key := m.key() or b"")})
            for key, held in zip(keys, past.get_many(keys), strict=True):
                if held is None:
                    yield key, None

    def _verify(self, live: BytesStore, past: BytesStore, clock: int) -> None:
        seen, expected = store_digest(live, clock), store_digest(past, clock)
        if seen != expected:
            raise StateCorrupt(
                f"store {live.spec.name!r} of {self.name} has digest {seen} after it was written "
                f"back, and the snapshot {expected}: nothing counts of it. It is tried again; if "
                "it stays so, restore the task from its changelog: 'holdfast restore run "
                f"{self.topology.app} --task {self.partition} --from changelog'",
                path=str(self.path),
            )

    def _remember(
        self, stores: TaskStores, past: TaskStores, marker: Marker, ends: dict[str, int]
    ) -> None:
        """Write the new marker to the directory, durably: else its windows could not be reused."""
        before = stores.checkpoint()
        known = {} if before is None else before.offsets
        offsets = {t: [topic_id, ends.get(t, end)] for t, (topic_id, end) in known.items()}
        stores.write({}, Checkpoint(marker, offsets, stores.layouts))
        stores.rocks.flush()
        for spec in self.topology.stores:
            if spec.backend == "memory":
                stores.clear(spec.name)
                held = past.stores[spec.name]
                with held.scan() as entries:
                    live = ((k, v) for k, v in entries if held.live(k, marker.stream_time_ms))
                    for keys, values in _chunks(live):
                        stores.write({spec.name: (keys, values)}, None)


def _at(then: Marker, begun: Marker, ends: dict[str, int]) -> Marker:
    """The snapshot's position under the epoch of the restore; published positions are kept."""
    return replace(
        begun,
        batch_number=1,  # differs from that of the old directory
        positions=then.positions,
        topic_ids=then.topic_ids,
        maxima=then.maxima,
        stream_time_ms=then.stream_time_ms,
        dropped=then.dropped,
        recorded=then.recorded,
        recorded_in=then.recorded_in,
        due=then.due,
        overdue=then.overdue,
        begun=then.begun,
        initial=then.initial,
        cut={},
        ends={**begun.committed, **ends},
        written_at=now_ms(),
        state=RUNNING,
        rewound=begun.epoch,
    )


def _chunks(found: Iterator[Difference] | Iterator[tuple[bytes, bytes]]) -> Iterator[Chunk]:
    keys: list[bytes] = []
    values: list[bytes | None] = []
    size = 0
    for key, value in found:
        keys.append(key)
        values.append(value)
        size += len(key) + len(value or b"")
        if len(keys) >= CHUNK_RECORDS or size >= CHUNK_BYTES:
            yield keys, values
            keys, values, size = [], [], 0
    if keys:
        yield keys, values


def _records(topic: str, spec: StoreSpec, keys: list[bytes], stored: list[bytes | None]) -> Records:
    if not spec.is_timestamped:
        return Records(topic, keys, stored)
    nothing = (None, now_ms())
    pairs = [nothing if one is None else split_timestamp(one) for one in stored]
    return Records(topic, keys, [value for value, _ in pairs], [time for _, time in pairs])


def _entries(stores: TaskStores, spec: StoreSpec) -> int:
    """An estimate."""
    engine = stores.engine(spec.name)
    return sum(engine.approximate_num_entries(f) for f in stores.stores[spec.name].families())
