"""`StateTask`: one partition of an application. A host runs many; tests run one in-process."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path

import structlog

from state_lib.changelog.topics import changelog_topic, commits_topic, dead_letter_queue
from state_lib.errors import LogLost, NotFound, SnapshotInvalid
from state_lib.failpoints import failpoint
from state_lib.protocol.marker import RESTORING, Marker, Verdict, advance, is_muted, judge
from state_lib.restore.facts import LocalFacts, size_of
from state_lib.restore.listener import Several
from state_lib.restore.local import Local
from state_lib.restore.past import PastPlan
from state_lib.restore.plan import AUTO, RestorePlan
from state_lib.restore.progress import RestoreProgress
from state_lib.specs import Topology
from state_lib.stores.pages import Page, page_of
from state_lib.stores.task_stores import Checkpoint, StoreChanges, TaskStores
from state_lib.task import asked
from state_lib.task import past as time_travel
from state_lib.task.barrier import Barrier
from state_lib.task.batch import Batch
from state_lib.task.context import TaskContext
from state_lib.task.declared import Declared, check_partition
from state_lib.task.doubt import check_cut, closing_in_doubt, remember_loss
from state_lib.task.exclusive import PATIENCE_S, Exclusive
from state_lib.task.held import Held
from state_lib.task.opening import Opening, OpenTask, write_marker
from state_lib.task.past import Past
from state_lib.task.reads import bytes_store_of, live_values
from state_lib.task.retention import RetentionGuard
from state_lib.task.room import check_disk
from state_lib.task.scans import scan_columns

log = structlog.get_logger(__name__)


class StateTask:
    """Task ``<app>/<partition>``: claim, read, commit; see docs/protocol.md, "One commit".

    Commits of one task are serial. Reads see committed state only and wait for no transaction.
    """

    def __init__(self, context: TaskContext, topology: Topology, partition: int) -> None:
        check_partition(topology, partition)
        self.partition = partition
        self.name = f"{topology.app}/{partition}"
        self.path: Path = context.state_dir / topology.app / str(partition)
        self._context = context
        self._held = Held(self.name)
        self._declared = Declared(topology, self._held)
        self._exclusive = Exclusive(self.name, self.path)
        self._guard: RetentionGuard | None = None
        self.progress = RestoreProgress()
        self.flushed_at = time.monotonic()
        self._flushed: Marker | None = None
        self.commits = 0
        self.past: str | None = None
        """The snapshot of a restore to the past that is under way."""
        self._barrier = Barrier()
        self._refused: dict[str, str] = {}
        """Snapshots that have proved incomplete: id → why. Plans do not read their contents."""

    # ------------------------------------------------------------------ opening and closing

    @property
    def is_open(self) -> bool:
        """Whether it can commit and answer."""
        return self._held.stores is not None

    @property
    def topology(self) -> Topology:
        """The topology of the open task, or for its next opening."""
        return self._declared.topology

    def open(self, wanted: str = AUTO) -> Marker:
        """Fence other writers, name this host in a marker, and bring the stores to the end.

        Args:
            wanted: the source of the state that somebody chose; by default the cheapest valid one.

        Raises:
            Busy: another process restores this task.
            Quarantined: its local state is lost; see `RestoreOptions.mode`.
            Unavailable: Kafka or the disk is away; try again.
            NotFound: it was retired.
        """
        with self._exclusive.lock:
            if self.is_open:
                return self.marker
            with self._exclusive.directory():
                return self._run(wanted)

    def plan(self, wanted: str = AUTO) -> RestorePlan:
        """What a restore would do now.

        Raises:
            Busy: one is running.
            InvalidRequest: ``wanted`` is not valid; has the reason.
        """
        opening = self.opening(wanted)
        marker, checkpoint = self._stands()
        if checkpoint is None:
            with self.alone():
                marker, checkpoint = self._stands()  # maybe it was opened while this waited
                if checkpoint is None:
                    return opening.plan()
        facts = LocalFacts(checkpoint, None, size_of([self.path]), in_use=True)
        return opening.request(marker).plan(Local(facts), complete=True, fenced=False)

    def _stands(self) -> tuple[Marker, Checkpoint | None]:
        """Where an open task stands; no checkpoint if it is closed."""
        with self._held.state_lock:
            stores = self._held.stores
            return self.marker, None if stores is None else stores.checkpoint()

    def restore(self, plan: RestorePlan) -> Marker:
        """Run a plan: close the task, build its directory from the plan's source, and open it.

        A plan is run once; and one for a lost directory is not run if the task was opened again.

        Raises:
            Busy: a restore of this task is running already.
            PlanStale: it would do something else now than when it was made, or its snapshot has
                proved incomplete.
            Unavailable: Kafka or the disk is away; the old directory is unchanged.
        """
        with self.alone():
            is_open = self.is_open
            asked.require_of(plan, self.name)
            if asked.is_done(plan, self.path, self._held.offsets if is_open else None):
                return self.marker if is_open else asked.opened_again(plan, self._run)
            ask = self.plan if is_open else lambda wanted: self.opening(wanted).plan()
            now = asked.planned_now(plan, ask)
            if is_open and now.is_nothing:
                return self.marker
            asked.refuse_if_stale(plan, now)
            self.close()
            try:
                return self._run(plan.choice, plan.id)
            except (SnapshotInvalid, NotFound) as error:
                if plan.snapshot is None:
                    raise
                self._refused[plan.snapshot] = error.message
                raise asked.stale(plan, error.message) from error

    def plan_past(self, snapshot: str, *, republish: bool = False) -> PastPlan:
        """The plan of going back to a snapshot; raises as `plan_past`."""
        opening = self.opening()
        newest = self.marker if self.is_open else opening.newest_marker()
        return time_travel.plan(opening, snapshot, republish=republish, newest=newest)

    def fetch_past(self, snapshot: str) -> None:
        """Fetch a snapshot while commits go on. Raises as `go_back`."""
        with self.alone():
            self.plan_past(snapshot)
            self.opening().rewriting().bring(snapshot)

    def go_back(self, past: Past) -> Marker:
        """Go back in time. If it is interrupted once begun, the next opening finishes it.

        Raises:
            Busy: a restore of this task is running already.
            Others: as `state_lib.task.past.begin`.
        """
        with self.alone():
            newest = self.opening().newest_marker()
            if not self.is_open and newest.state != RESTORING:
                self._run(AUTO)  # do not begin with a task that cannot be opened
            if self.is_open:  # readers see a commit some ms after its writer does
                newest = max(newest, self.marker, key=lambda m: (m.epoch, m.batch_number))
            if time_travel.begin(self.opening(), past, newest, self.close):
                return self._run(AUTO)
            return self.marker

    def opening(self, wanted: str = AUTO, plan_id: str = "") -> Opening:
        """One attempt to open it; ``wanted`` as in `open`; ``plan_id``: of the chosen plan."""
        topology = self.topology

        def cancelled() -> bool:
            retired, stopping = self._exclusive.retired, self._context.stopping.is_set()
            return retired or stopping or self._declared.is_other(topology)

        return Opening(
            context=self._context,
            topology=topology,
            partition=self.partition,
            path=self.path,
            listener=Several(self._context.listener, self.progress),
            wanted=wanted,
            plan_id=plan_id,
            cancelled=cancelled,
            on_past=self._on_past,
            refused=self._refused,
        )

    def alone(self, patience_s: float = PATIENCE_S) -> contextlib.AbstractContextManager[None]:
        """Keep others from opening, restoring or repairing it; raises as `Exclusive.alone`."""
        return self._exclusive.alone(patience_s)

    def close(self) -> None:
        """Close stores and writer. Nothing is lost: unflushed changes are replayed later."""
        self._held.close()

    def retire(self) -> None:
        """Close for good: this object cannot be opened again."""
        self._exclusive.retired = True  # ends a running restore
        with self._exclusive.lock:
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
            with self._held.state_lock:
                dropped = stores.drop_expired(marker.stream_time_ms)
            if dropped:
                log.info("dropped expired segments", task=self.name, families=dropped)

    def keep_retention(self) -> None:
        """Check whether brokers could delete records of live windows; see `RetentionGuard`.

        Raises:
            Unavailable: the task is closed, or Kafka could not be asked.
        """
        with self.view() as (marker, stores):
            oldest, guard = stores.oldest_live(marker.stream_time_ms), self._guard
        if guard is not None:
            guard.look(oldest)

    # ------------------------------------------------------------------ claim and commit

    def claim(self, topology: Topology, epoch: int) -> Marker:
        """Let a driver take the task; returns the new marker.

        Args:
            topology: as the driver declares it; ``extra`` has the id of the topology topic.
            epoch: of its claim there.

        Raises:
            Superseded: a higher epoch has claimed it already.
            TopicRecreated: the same or a higher epoch of a deleted topology topic has claimed it.
        """
        if self._declared.make_way(topology, epoch):
            self.open()  # without the commit lock: it may take long
        held = self._held
        with held.commit_lock, self.guarded():
            held.opened()
            verdict = held.judge_claim(topology, epoch)
            self._declared.confirm(topology)
            if verdict is Verdict.APPLY:
                topic_id = topology.extra.get("topic_id", "")
                marker = self.marker.claimed_by(epoch, self._context.host_id, topic_id)
                write_marker(held.opened_writer(), self.topology, self.partition, marker)
                self._apply({}, marker)
            return self.marker

    def declare(self, topology: Topology) -> bool:
        """Set the newest driver's topology; see `Declared.declare`."""
        return self._declared.declare(topology)

    def commit(self, batch: Batch) -> Marker:
        """Commit one batch: one Kafka transaction, then one RocksDB write.

        Returns:
            The marker; that of an earlier identical commit if this one was done already.

        Raises:
            Realign, Superseded: see `state_lib.protocol.marker.judge` and `is_muted`.
            Unavailable: nothing was committed, or the task must be opened again to know; try again.
            StoreFull: a memory store cannot take it; nothing was written.
            TooLarge: a record is larger than its topic takes; nothing was written.
            NotOwner: another writer has taken over.
            LogLost: a changelog was deleted and created again meanwhile; nothing was written.
        """
        with self._held.commit_lock, self.guarded():
            stores = self._held.opened()
            if judge(self.marker, batch.header) is Verdict.ALREADY_DONE:
                return self.marker
            started = time.monotonic()
            batch.check(self.topology, dead_letter_queue(self.topology.app))
            if is_muted(self.marker, batch.header):
                batch = replace(batch, outputs=())
            changes = batch.changes(self.topology)
            with self._held.state_lock:
                stores.check_room(changes, self.marker.stream_time_ms)
            check_disk(self.name, self.path, batch.size_bytes())
            if self._guard is not None:
                self._guard.protect(batch.puts)
            failpoint("commit.before_transaction")
            marker = self._transact(batch)
            self._apply(changes, marker)
            changed = {store: len(p.keys) for store, p in batch.puts.items()}
            self.commits += 1
            self._context.on_commit(self.name, changed, time.monotonic() - started)
            return marker

    def at_commit(
        self, epoch: int, batch_number: int, action: Callable[[], None]
    ) -> Callable[[], None]:
        """Run ``action`` while the task is at that commit: now, or right after it.

        No other commit is made meanwhile. Call the result to stop waiting.

        Raises:
            Realign: the task is beyond it already.
        """
        with self._held.commit_lock:
            self._held.opened()
            return self._barrier.arm(self.name, (epoch, batch_number), action, self.marker)

    def size_limit(self, topic: str) -> int:
        """The greatest key plus value (bytes) that a topic takes; Unavailable if it is closed."""
        return self._held.opened_writer().limit(topic)

    # ------------------------------------------------------------------ reads

    @property
    def marker(self) -> Marker:
        """The marker of the last applied commit."""
        return self._held.marker

    @property
    def flushed(self) -> Marker | None:
        """The marker that its directory is at after a kill, at least; None: not flushed yet."""
        return self._flushed

    def standing(self) -> Checkpoint | None:
        """The checkpoint that its stores are at between two commits; None if it is closed."""
        return self._held.standing()

    def get_many(self, store: str, keys: Sequence[bytes]) -> tuple[Marker, list[bytes | None]]:
        """Stored values of composite keys, None if absent or expired, and their marker."""
        with self.guarded(), self.view() as (marker, stores):
            found = bytes_store_of(stores, self.topology, store)
            return marker, live_values(found, keys, marker.stream_time_ms)

    def page(
        self, store: str, lower: bytes | None, upper: bytes | None, rows: int
    ) -> tuple[Marker, Page]:
        """The first entries of a range, as `page_of`, and their marker."""
        with self.guarded(), self.view() as (marker, stores):
            found = bytes_store_of(stores, self.topology, store)
            return marker, page_of(found, lower, upper, rows)

    def scan(self, store: str) -> tuple[Marker, Iterator[tuple[bytes, bytes]]]:
        """Live entries of a store, and the marker that they are all at.

        The iterator holds a snapshot until it is exhausted or closed.
        """
        marker, parts = scan_columns(self, store)
        pairs = (zip(p.keys.to_pylist(), p.values.to_pylist(), strict=True) for p in parts)
        return marker, chain.from_iterable(pairs)

    def view(self) -> contextlib.AbstractContextManager[tuple[Marker, TaskStores]]:
        """The stores and their marker; no commit is applied meanwhile.

        Hold it only briefly: read what you need, or open iterators.
        """
        return self._held.view()

    def guarded(self) -> contextlib.AbstractContextManager[None]:
        """Close after errors that leave writer or stores in doubt; see `closing_in_doubt`."""
        return closing_in_doubt(self._held, self.path, self._is_still_ours)

    # ------------------------------------------------------------------ inside

    def _on_past(self, snapshot: str | None) -> None:
        self.past = snapshot

    def _run(self, wanted: str, plan_id: str = "") -> Marker:
        try:
            opened = self.opening(wanted, plan_id).run()
            self._install(opened)
        finally:
            self.progress.clear()
        return opened.marker

    def _install(self, opened: OpenTask) -> None:
        with self._held.commit_lock, self._held.state_lock:
            self._held.install(opened)
            self._declared.topology = opened.topology  # another may have been declared meanwhile
            self._guard = RetentionGuard(self._context.log, self.topology)

    def _transact(self, batch: Batch) -> Marker:
        at = (commits_topic(self.topology.app), self.name.encode())
        changelogs = {changelog_topic(self.topology.app, s.name) for s in self.topology.stores}
        host = self._context.host_id

        def marker_of(counts: dict[str, list[int]]) -> bytes:
            cut = {t: c for t, c in counts.items() if t in changelogs}
            check_cut(self.topology, self.partition, self._held.offsets, cut)
            return advance(self.marker, batch.header, host, cut).to_bytes()

        writer = self._held.opened_writer()
        try:
            return Marker.from_bytes(writer.write(batch.records(self.topology.app), at, marker_of))
        except LogLost as error:
            remember_loss(writer, self.topology, self.partition, self.marker, error)
            raise

    def _apply(self, changes: StoreChanges, marker: Marker) -> None:
        self._held.apply(changes, marker)
        self._barrier.passed(marker)

    def _is_still_ours(self) -> bool:
        """Whether the last marker names this host: a time-out also appears as fencing."""
        return self.opening().newest_marker().owner == self._context.host_id
