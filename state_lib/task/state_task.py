"""`StateTask`: one partition of an application. A host runs many; tests run one in-process."""

from __future__ import annotations

import contextlib
import shutil
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import structlog

from state_lib.changelog.admin import topic_configs
from state_lib.changelog.reader import read_last
from state_lib.changelog.topics import changelog_topic, commits_topic, dead_letters_topic
from state_lib.changelog.writer import OutcomeUnknown, TransactionalWriter
from state_lib.errors import NotFound, NotOwner, StateCorrupt, Superseded, Unavailable
from state_lib.failpoints import failpoint
from state_lib.kafka import Kafka, ends, require, starts
from state_lib.marker import Marker, Verdict, advance, judge
from state_lib.restore.listener import RestoreListener, Silent
from state_lib.restore.run import RestoreRequest, restore_task, set_aside
from state_lib.restore.source import LogRange
from state_lib.specs import Topology
from state_lib.stores.interfaces import BytesStore
from state_lib.stores.rocksdb.options import RocksDBOptions
from state_lib.stores.task_stores import Checkpoint, StoreChanges, TaskStores
from state_lib.task.batch import Batch
from state_lib.task.retention import RetentionGuard

log = structlog.get_logger(__name__)
MIN_FREE_BYTES = 32 << 20
"""Free disk below which no commit is started: a full disk found later closes the task."""


OnCommit = Callable[[str, Mapping[str, int], float], None]
"""Told of each applied commit: the task, changed entries per store, seconds that it took."""


def _nobody(_task: str, _changed: Mapping[str, int], _seconds: float) -> None:
    """The default: nobody listens."""


@dataclass(frozen=True)
class TaskContext:
    """What all tasks of a process share."""

    kafka: Kafka
    host_id: str
    state_dir: Path
    options: RocksDBOptions = field(default_factory=RocksDBOptions)
    listener: RestoreListener = field(default_factory=Silent)
    on_commit: OnCommit = _nobody


class StateTask:
    """Task ``<app>/<partition>``: claim, read, commit, as shared/DESIGN.md "Commit".

    Commits of one task are serial. Reads see committed state only and wait for no transaction.
    """

    def __init__(self, context: TaskContext, topology: Topology, partition: int) -> None:
        if not 0 <= partition < topology.partitions:
            raise NotFound(
                f"application {topology.app!r} has partitions 0 to {topology.partitions - 1}, "
                f"not {partition}",
                partition=partition,
            )
        self.topology = topology
        self.partition = partition
        self.name = f"{topology.app}/{partition}"
        self.path = context.state_dir / topology.app / str(partition)
        self._context = context
        self._commit_lock = threading.RLock()
        self._state_lock = threading.RLock()
        self._writer: TransactionalWriter | None = None
        self._stores: TaskStores | None = None
        self._marker = Marker()
        self._offsets: dict[str, list] = {}  # type: ignore[type-arg]
        self._guard: RetentionGuard | None = None
        self.flushed_at = time.monotonic()
        self._flushed: Marker | None = None
        self.commits = 0

    # ------------------------------------------------------------------ opening and closing

    @property
    def is_open(self) -> bool:
        """Whether it can commit and answer."""
        return self._stores is not None

    def open(self) -> Marker:
        """Fence other writers, name this host in a marker, and bring the stores to the end.

        Raises:
            Unavailable: Kafka or the disk is away; try again.
        """
        with self._commit_lock:
            if self.is_open:
                return self._marker
            kafka, app = self._context.kafka, self.topology.app
            admin = kafka.admin()
            changelogs = [changelog_topic(app, s.name) for s in self.topology.stores]
            facts = require(admin, [*changelogs, commits_topic(app)])
            writer = TransactionalWriter(kafka, f"{app}-{self.partition}", self.partition)
            try:
                writer.open()
                last = read_last(kafka, commits_topic(app), self.partition)
                value = None if last is None else last.value()
                marker = Marker() if value is None else Marker.from_bytes(value)
                marker = marker.owned_by(self._context.host_id)
                self._write_marker(writer, marker)
                configs = topic_configs(admin, changelogs)
                partitions = [(t, self.partition) for t in changelogs]
                first, end = starts(admin, partitions), ends(admin, partitions)
                logs = {
                    t: LogRange(
                        facts[t].id,
                        first[t, self.partition],
                        end[t, self.partition],
                        int(configs[t]["delete.retention.ms"]),
                    )
                    for t in changelogs
                }
                stores = restore_task(
                    RestoreRequest(
                        kafka=kafka,
                        topology=self.topology,
                        partition=self.partition,
                        path=self.path,
                        logs=logs,
                        marker=marker,
                        options=self._context.options,
                        listener=self._context.listener,
                    )
                )
            except OutcomeUnknown as error:
                writer.close()
                raise Unavailable(error.message, task=self.name) from error
            except BaseException:
                writer.close()
                raise
            with self._state_lock:
                self._writer, self._stores, self._marker = writer, stores, marker
                self._offsets = {t: [r.topic_id, r.end] for t, r in logs.items()}
                self._guard = RetentionGuard(admin, self.topology)
            return marker

    def close(self) -> None:
        """Close stores and writer. Nothing is lost: what was not flushed is replayed."""
        with self._commit_lock, self._state_lock:
            stores, writer = self._stores, self._writer
            self._stores = self._writer = None
            if stores is not None:
                stores.close()
            if writer is not None:
                writer.close()

    def flush(self) -> None:
        """Make the stores durable, so that a restart replays less; drop expired segments."""
        with self._commit_lock, self.guarded():
            stores = self._opened()
            self.flushed_at = time.monotonic()
            if self._marker is self._flushed:
                return
            marker = self._marker
            stores.rocks.flush()
            self._flushed = marker
            with self._state_lock:
                dropped = stores.drop_expired(marker.clock)
            if dropped:
                log.info("dropped expired segments", task=self.name, families=dropped)

    # ------------------------------------------------------------------ claim and commit

    def claim(self, topology: Topology, epoch: int) -> Marker:
        """Let a driver take the task; returns the marker that it now stands at.

        Raises:
            Superseded: a higher epoch has claimed it already.
        """
        with self._commit_lock, self.guarded():
            self._opened()
            if epoch < self._marker.epoch:
                raise Superseded(
                    f"epoch {epoch} cannot claim {self.name}: epoch {self._marker.epoch} has; "
                    "another driver runs this application",
                    epoch=epoch,
                    current=self._marker.epoch,
                )
            if topology.stores != self.topology.stores:
                self.close()
                self.topology = topology
                self.open()
            self.topology = topology
            if epoch > self._marker.epoch:
                marker = self._marker.claimed_by(epoch, self._context.host_id)
                self._write_marker(self._require_writer(), marker)
                self._apply({}, marker)
            return self._marker

    def commit(self, batch: Batch) -> Marker:
        """Commit one batch: one Kafka transaction, then one RocksDB write.

        Returns:
            The marker; of an earlier identical commit if this one was done already.

        Raises:
            Realign, Superseded: see `state_lib.marker.judge`.
            Unavailable: nothing stands, or the task must be opened again to tell; try again.
            StoreFull: a memory store cannot take it; nothing was written.
            NotOwner: another writer has taken over.
        """
        with self._commit_lock, self.guarded():
            stores = self._opened()
            if judge(self._marker, batch.header) is Verdict.ALREADY_DONE:
                return self._marker
            started = time.monotonic()
            batch.check(self.topology, dead_letters_topic(self.topology.app))
            changes = batch.changes(self.topology)
            with self._state_lock:
                stores.check_room(changes, self._marker.clock)
            self._check_disk(batch)
            if self._guard is not None:
                self._guard.protect(batch.puts)
            failpoint("commit.before_transaction")
            marker = self._transact(batch)
            self._apply(changes, marker)
            changed = {store: len(p.keys) for store, p in batch.puts.items()}
            self.commits += 1
            self._context.on_commit(self.name, changed, time.monotonic() - started)
            return marker

    # ------------------------------------------------------------------ reads

    @property
    def marker(self) -> Marker:
        """The marker of the last applied commit."""
        return self._marker

    def get_many(self, store: str, keys: Sequence[bytes]) -> tuple[Marker, list[bytes | None]]:
        """Stored values of composite keys, None where absent or expired, and where they stand."""
        with self.guarded(), self.view() as (marker, stores):
            found = bytes_store_of(stores, self.topology, store)
            values = found.get_many(keys)
            spec = stores.specs[store]
            if spec.is_window:
                values = [
                    v if v is not None and found.live(k, marker.clock) else None
                    for k, v in zip(keys, values, strict=True)
                ]
            return marker, values

    def scan(self, store: str) -> tuple[Marker, Iterator[tuple[bytes, bytes]]]:
        """Live entries of a store, all as they were at the marker that comes with them.

        The iterator holds a snapshot until it is exhausted or closed.
        """
        stack = contextlib.ExitStack()
        with self.guarded(), self.view() as (marker, stores):
            found = bytes_store_of(stores, self.topology, store)
            entries = stack.enter_context(found.scan())
        windowed = found.spec.is_window

        def rows() -> Iterator[tuple[bytes, bytes]]:
            with self.guarded(), stack:
                for key, value in entries:
                    if not windowed or found.live(key, marker.clock):
                        yield key, value
                if self._stores is not stores:  # closing ends open iterators: this is no end
                    raise Unavailable(f"task {self.name} was closed during a scan", task=self.name)

        return marker, rows()

    @contextlib.contextmanager
    def view(self) -> Iterator[tuple[Marker, TaskStores]]:
        """The stores and the marker they stand at; no commit is applied meanwhile.

        Keep it short: take what you need, or open iterators, and leave.
        """
        with self._state_lock:
            yield self._marker, self._opened()

    # ------------------------------------------------------------------ inside

    def _opened(self) -> TaskStores:
        if self._stores is None:
            raise Unavailable(
                f"task {self.name} is not open yet (it is opening or restoring); try again",
                task=self.name,
            )
        return self._stores

    def _require_writer(self) -> TransactionalWriter:
        if self._writer is None:
            raise Unavailable(f"task {self.name} has no writer; try again", task=self.name)
        return self._writer

    def _write_marker(self, writer: TransactionalWriter, marker: Marker) -> None:
        at = (commits_topic(self.topology.app), self.name.encode())
        writer.write([], at, lambda _cut: marker.to_bytes())

    def _transact(self, batch: Batch) -> Marker:
        at = (commits_topic(self.topology.app), self.name.encode())
        changelogs = {changelog_topic(self.topology.app, s.name) for s in self.topology.stores}
        host = self._context.host_id

        def marker_of(counts: dict[str, list[int]]) -> bytes:
            cut = {t: c for t, c in counts.items() if t in changelogs}
            return advance(self._marker, batch.header, host, cut).to_bytes()

        value = self._require_writer().write(batch.records(self.topology.app), at, marker_of)
        return Marker.from_bytes(value)

    def _apply(self, changes: StoreChanges, marker: Marker) -> None:
        """Step 3. The transaction stands: a failure here closes the task, replay brings it back."""
        try:
            failpoint("commit.after_kafka")
            for topic, (end, _count) in marker.cut.items():
                self._offsets[topic] = [self._offsets[topic][0], end]
            with self._state_lock:
                stores = self._opened()
                stores.write(changes, Checkpoint(marker, self._offsets, stores.layouts))
                self._marker = marker
            failpoint("commit.after_rocksdb")
        except BaseException:
            self.close()
            raise

    def _check_disk(self, batch: Batch) -> None:
        needed = MIN_FREE_BYTES + 2 * batch.size_bytes()
        free = shutil.disk_usage(self.path).free
        if free < needed:
            raise Unavailable(
                f"disk under {self.path} has {free >> 20} MiB free, a commit of {self.name} needs "
                f"{needed >> 20} MiB: free space; commits go on by themselves",
                free_bytes=free,
                needed_bytes=needed,
            )

    @contextlib.contextmanager
    def guarded(self) -> Iterator[None]:
        """After an error that leaves writer or stores in doubt, close: opening again tells."""
        stores = self._stores
        try:
            yield
        except StateCorrupt as error:
            log.error("state is corrupt: set aside and rebuilt", task=self.name, why=error.message)
            with self._commit_lock:
                # Unless another thread has met it as well, and what stands there is new.
                if self._stores is None or self._stores is stores:
                    self.close()
                    if self.path.exists():
                        set_aside(self.path)
            raise Unavailable(f"{self.name}: {error.message}", task=self.name) from error
        except OutcomeUnknown as error:
            self.close()
            raise Unavailable(error.message, task=self.name) from error
        except NotOwner as error:
            self.close()
            if self._is_still_ours():
                why = (
                    f"{error.message}, but no other host has taken {self.name}: it is opened again"
                )
                raise Unavailable(why, task=self.name) from error
            raise

    def _is_still_ours(self) -> bool:
        """Whether the last marker names this host: a transaction that timed out is fenced too."""
        last = read_last(self._context.kafka, commits_topic(self.topology.app), self.partition)
        value = None if last is None else last.value()
        return value is not None and Marker.from_bytes(value).owner == self._context.host_id


def bytes_store_of(stores: TaskStores, topology: Topology, store: str) -> BytesStore:
    """The store of that name.

    Raises:
        NotFound: listing the stores that exist.
    """
    found = stores.stores.get(store)
    if found is None:
        known = [s.name for s in topology.stores]
        raise NotFound(
            f"application {topology.app!r} has no store {store!r}; its stores: {known}",
            store=store,
            known=known,
        )
    return found
