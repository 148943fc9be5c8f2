"""`StateTask`: one partition of an application. A host runs many; tests run one in-process."""

from __future__ import annotations

import contextlib
import shutil
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

import structlog

from state_lib.changelog.topics import changelog_topic, commits_topic, dead_letters_topic
from state_lib.changelog.writer import OutcomeUnknown, TransactionalWriter
from state_lib.errors import (
    Busy,
    HoldfastError,
    KafkaRefused,
    LogLost,
    NotFound,
    NotOwner,
    StateCorrupt,
    Superseded,
    TooLarge,
    Unavailable,
)
from state_lib.failpoints import failpoint
from state_lib.marker import Marker, Verdict, advance, judge
from state_lib.restore.facts import LocalFacts, size_of
from state_lib.restore.listener import Several
from state_lib.restore.local import Local, look, set_aside
from state_lib.restore.lock import restore_lock
from state_lib.restore.plan import AUTO, RestorePlan
from state_lib.restore.progress import RestoreProgress
from state_lib.restore.source import log_lost
from state_lib.specs import Topology
from state_lib.stores.interfaces import BytesStore
from state_lib.stores.task_stores import Checkpoint, StoreChanges, TaskStores
from state_lib.task.barrier import Barrier
from state_lib.task.batch import Batch
from state_lib.task.context import TaskContext
from state_lib.task.frames import let_go
from state_lib.task.loss import Loss
from state_lib.task.opening import Opening, OpenTask, newest_marker, write_marker
from state_lib.task.repair import Repair
from state_lib.task.retention import RetentionGuard

log = structlog.get_logger(__name__)
_PATIENCE_S = 2.0  # an attempt to open a task that cannot be opened is over sooner than that
_REPAIR_PATIENCE_S = 20.0  # attempts to open it may follow one another
MIN_FREE_BYTES = 32 << 20
"""Free disk below which no commit is started: a full disk found later closes the task."""


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
        self._opening_lock = threading.RLock()  # taken before the others
        self._commit_lock = threading.RLock()
        self._state_lock = threading.RLock()
        self._writer: TransactionalWriter | None = None
        self._stores: TaskStores | None = None
        self._marker = Marker()
        self._offsets: dict[str, list] = {}  # type: ignore[type-arg]
        self._guard: RetentionGuard | None = None
        self.progress = RestoreProgress()
        self.flushed_at = time.monotonic()
        self._flushed: Marker | None = None
        self._retired = False
        self.commits = 0
        self._barrier = Barrier()

    # ------------------------------------------------------------------ opening and closing

    @property
    def is_open(self) -> bool:
        """Whether it can commit and answer."""
        return self._stores is not None

    def open(self, wanted: str = AUTO) -> Marker:
        """Fence other writers, name this host in a marker, and bring the stores to the end.

        Args:
            wanted: the source of the state that somebody chose; by itself, the cheapest valid one.

        Raises:
            Busy: another process restores this task.
            Quarantined: its local state is lost; see `RestoreOptions.mode`.
            Unavailable: Kafka or the disk is away; try again.
            NotFound: it was retired.
        """
        with self._opening_lock:
            if self.is_open:
                return self._marker
            with self._locked():
                return self._run(wanted)

    def plan(self, wanted: str = AUTO) -> RestorePlan:
        """What a restore would do now.

        Raises:
            Busy: one is running.
            InvalidRequest: ``wanted`` is not valid; says why.
        """
        opening = self._opening(wanted)
        with self._state_lock:
            marker = self._marker
            checkpoint = None if self._stores is None else self._stores.checkpoint()
        if checkpoint is None:
            with self._exclusively(), self._locked():
                return opening.plan()
        facts = LocalFacts(checkpoint, None, size_of([self.path]), in_use=True)
        return opening.request(marker).plan(Local(facts), complete=True)

    def restore(self, plan: RestorePlan) -> Marker:
        """Run a plan: the task is closed, its directory built from the plan's source, and opened.

        Raises:
            Busy: a restore of this task is running already.
            InvalidRequest: the plan's source is not valid any more.
            Unavailable: Kafka or the disk is away; what was there before still is.
        """
        with self._exclusively(), self._locked():
            if self.is_open and self.plan(plan.choice).is_nothing:
                return self._marker
            self.close()
            return self._run(plan.choice)

    def loss(self) -> Loss:
        """What its topics lost, and whether its local copy can take their place.

        Raises:
            Busy: it is opening or restoring.
            Unavailable: Kafka is away.
        """
        repair = Repair(self._opening(AUTO))
        with self._commit_lock:  # a commit that goes on is no loss; nor are those of later
            checkpoint = None if self._stores is None else self._stores.checkpoint()
        if checkpoint is not None:  # Kafka may take its time: commits do not wait for it
            return repair.look(LocalFacts(checkpoint, None, 0, in_use=True))
        with self._exclusively(_REPAIR_PATIENCE_S), self._locked():
            local = look(self.topology, self.path, self._context.options)
            try:
                return repair.look(local.facts)
            finally:
                local.close()

    def repair(self, stores: Sequence[str] | None = None) -> Marker:
        """Write lost topics anew from the local copy; the task is closed, and is so afterwards.

        Args:
            stores: whose changelogs; None: all that are lost.

        Raises:
            Busy: it is opening or restoring.
            NotRepairable, Unavailable, LogLost: see `Repair.run`.
        """
        opening = replace(self._opening(AUTO), listener=self.progress)
        repair = Repair(opening, None if stores is None else tuple(stores))
        with self._exclusively(_REPAIR_PATIENCE_S), self._locked():
            if self.is_open:
                loss = self.loss()
                repair.require(loss)
                if not loss.topics:
                    return self._marker
            self.close()
            try:
                return repair.run()
            finally:
                self.progress.clear()

    def _run(self, wanted: str) -> Marker:
        try:
            opened = self._opening(wanted).run()
            self._install(opened)
        finally:
            self.progress.clear()
        return opened.marker

    def _opening(self, wanted: str) -> Opening:
        topology = self.topology

        def cancelled() -> bool:
            stores_changed = self.topology.stores != topology.stores
            return self._retired or stores_changed or self._context.stopping.is_set()

        return Opening(
            context=self._context,
            topology=topology,
            partition=self.partition,
            path=self.path,
            listener=Several(self._context.listener, self.progress),
            wanted=wanted,
            cancelled=cancelled,
        )

    def _locked(self) -> contextlib.AbstractContextManager[None]:
        """The lock beside the directory. It would bring back the folder of a retired task."""
        if self._retired:
            raise NotFound(f"task {self.name} was removed from this host", task=self.name)
        return restore_lock(self.path)

    @contextlib.contextmanager
    def _exclusively(self, patience_s: float = _PATIENCE_S) -> Iterator[None]:
        """While nothing else opens or restores this task."""
        if not self._opening_lock.acquire(timeout=patience_s):
            raise Busy(
                f"task {self.name} is opening or restoring already: wait for it, `holdfast stores` "
                "shows its state",
                task=self.name,
            )
        try:
            yield
        finally:
            self._opening_lock.release()

    def _install(self, opened: OpenTask) -> None:
        checkpoint = opened.stores.checkpoint()
        offsets = {} if checkpoint is None else checkpoint.offsets
        with self._commit_lock, self._state_lock:
            self._writer, self._stores = opened.writer, opened.stores
            self.topology = opened.topology  # another may have been declared meanwhile
            self._marker = opened.marker
            self._offsets = {topic: list(at) for topic, at in offsets.items()}
            self._guard = RetentionGuard(self._context.kafka.admin(), self.topology)

    def close(self) -> None:
        """Close stores and writer. Nothing is lost: what was not flushed is replayed."""
        with self._commit_lock, self._state_lock:
            stores, writer = self._stores, self._writer
            self._stores = self._writer = None
            if stores is not None:
                stores.close()
            if writer is not None:
                writer.close()

    def retire(self) -> None:
        """Close for good: whoever still holds this object cannot open it again."""
        self._retired = True  # ends a restore that runs
        with self._opening_lock:
            self.close()

    def flush(self) -> None:
        """Make the stores durable, so that a restart replays less; drop expired segments."""
        with self.guarded():
            with self.view() as (marker, stores):
                self.flushed_at = time.monotonic()
            if marker is self._flushed:
                return
            stores.rocks.flush()  # commits go on meanwhile
            self._flushed = marker
            with self._state_lock:
                dropped = stores.drop_expired(marker.clock)
            if dropped:
                log.info("dropped expired segments", task=self.name, families=dropped)

    def keep_retention(self) -> None:
        """Look whether brokers could delete records of live windows; see `RetentionGuard`.

        Raises:
            Unavailable: the task is closed, or Kafka could not be asked.
        """
        with self.view() as (marker, stores):
            oldest, guard = stores.oldest_live(marker.clock), self._guard
        if guard is not None:
            guard.look(oldest)

    # ------------------------------------------------------------------ claim and commit

    def claim(self, topology: Topology, epoch: int) -> Marker:
        """Let a driver take the task; returns the marker that it now stands at.

        Raises:
            Superseded: a higher epoch has claimed it already.
        """
        self._take_topology(topology, epoch)
        with self._commit_lock, self.guarded():
            stores = self._opened()
            self._check_epoch(epoch)
            if not stores.are_of(topology):
                why = f"task {self.name} was opened with other stores meanwhile; try again"
                raise Unavailable(why, task=self.name)
            self.topology = topology
            if epoch > self._marker.epoch:
                marker = self._marker.claimed_by(epoch, self._context.host_id)
                write_marker(self._require_writer(), self.topology, self.partition, marker)
                self._apply({}, marker)
            return self._marker

    def declare(self, topology: Topology) -> bool:
        """What the newest driver declares; counts at once for a task that is not open.

        One that cannot be opened with the stores of a newer job can go back to those of before.

        Returns:
            Whether it is to be opened with other stores than the last attempt.
        """
        with self._state_lock:
            changes = not self.is_open and self.topology.stores != topology.stores
            if changes:
                self.topology = topology
            return changes

    def _take_topology(self, topology: Topology, epoch: int) -> None:
        """Open again with other stores, if the driver's differ."""
        with self._commit_lock:
            stores = self._opened()
            self._check_epoch(epoch)
            if stores.are_of(topology):
                return
            self.topology = topology  # first: once it is closed, anybody may open it again
            self.close()
        self.open()  # without the commit lock: it may take its time

    def _check_epoch(self, epoch: int) -> None:
        if epoch < self._marker.epoch:
            raise Superseded(
                f"epoch {epoch} cannot claim {self.name}: epoch {self._marker.epoch} has; "
                "another driver runs this application",
                epoch=epoch,
                current=self._marker.epoch,
            )

    def commit(self, batch: Batch) -> Marker:
        """Commit one batch: one Kafka transaction, then one RocksDB write.

        Returns:
            The marker; of an earlier identical commit if this one was done already.

        Raises:
            Realign, Superseded: see `state_lib.marker.judge`.
            Unavailable: nothing stands, or the task must be opened again to tell; try again.
            StoreFull: a memory store cannot take it; nothing was written.
            TooLarge: a record is larger than its topic takes; nothing was written.
            NotOwner: another writer has taken over.
            LogLost: a changelog was deleted and created again meanwhile; nothing was written.
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

    def at_commit(self, epoch: int, n: int, action: Callable[[], None]) -> Callable[[], None]:
        """Run ``action`` while the task stands at that commit: now, or right after it.

        No other commit is made meanwhile. The result gives up waiting.

        Raises:
            Realign: the task stands beyond it already.
        """
        with self._commit_lock:
            self._opened()
            return self._barrier.arm(self.name, (epoch, n), action, self._marker)

    def size_limit(self, topic: str) -> int:
        """The greatest key plus value (bytes) that a topic takes; Unavailable if it is closed."""
        return self._require_writer().limit(topic)

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

    def _transact(self, batch: Batch) -> Marker:
        at = (commits_topic(self.topology.app), self.name.encode())
        changelogs = {changelog_topic(self.topology.app, s.name) for s in self.topology.stores}
        host = self._context.host_id

        def marker_of(counts: dict[str, list[int]]) -> bytes:
            cut = {t: c for t, c in counts.items() if t in changelogs}
            self._check_cut(cut)
            return advance(self._marker, batch.header, host, cut).to_bytes()

        writer = self._require_writer()
        try:
            return Marker.from_bytes(writer.write(batch.records(self.topology.app), at, marker_of))
        except LogLost as error:
            self._doubt(writer, str(error.details["topic"]))
            raise

    def _doubt(self, writer: TransactionalWriter, topic: str) -> None:
        """Remember the loss: the records that were aborted have moved the log's end."""
        try:
            marker = self._marker.doubting(self._context.host_id, [topic])
            write_marker(writer, self.topology, self.partition, marker)
        except HoldfastError as error:
            log.error("loss is not remembered", task=self.name, topic=topic, why=error.message)

    def _check_cut(self, cut: Mapping[str, list[int]]) -> None:
        """A log never goes back, unless it is another one: nothing of the commit stands then."""
        for topic, (end, count) in cut.items():
            begin, committed = end - count, self._offsets[topic][1]
            if begin < committed:
                why = f"this commit began at offset {begin}, and {committed} was committed"
                raise log_lost(self.topology, self.partition, topic, why)

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
        self._barrier.passed(marker)

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
                    let_go(error)
                    self.close()
                    if self.path.exists():
                        set_aside(self.path, error.message)
            raise Unavailable(f"{self.name}: {error.message}", task=self.name) from error
        except OutcomeUnknown as error:
            self.close()
            raise Unavailable(error.message, task=self.name) from error
        except (KafkaRefused, LogLost, TooLarge):
            self.close()  # its writer may be of no use any more
            raise
        except OSError as error:  # of the disk; a commit that stands has closed the task
            why = f"{self.name}: {error}; look at the disk under {self.path}"
            raise Unavailable(why, task=self.name) from error
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
        found = newest_marker(self._context.kafka, self.topology, self.partition)
        return found.owner == self._context.host_id


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
