"""The tasks that a host owns: learns applications, opens their tasks, keeps them flushed."""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace

import structlog

from state_lib.addresses import HostAddress
from state_lib.changelog.claims import Claim, gone, newest_claim
from state_lib.changelog.reader import read
from state_lib.changelog.topics import topology_topic
from state_lib.errors import (
    HoldfastError,
    LogLost,
    NotFound,
    NotOwner,
    Quarantined,
    Superseded,
    Unavailable,
    from_wire,
)
from state_lib.host import remembered
from state_lib.host.placement import owner_of
from state_lib.kafka import describe, ends, require, starts
from state_lib.marker import Marker
from state_lib.names import check_name
from state_lib.restore.plan import RestorePlan
from state_lib.specs import Topology
from state_lib.task import StateTask, TaskContext
from state_lib.task.loss import find
from state_lib.task.repairing import repair_task

log = structlog.get_logger(__name__)
_REOPEN_FIRST_S, _REOPEN_MOST_S = 0.5, 10.0
_LOOK_S = 0.5
EVERY = "(applications)"
"""Stands in readiness for those that are not known yet; no application's id may look like it."""


class TaskManager:
    """Owns this host's tasks.

    Args:
        context: what the tasks share.
        hosts: the static list of all hosts, this one included.
        flush_interval_s: a task's stores are made durable at least that often, so that a killed
            host replays at most what was committed since.

    Attributes:
        apps: that this host knows.
        tasks: by application and partition.
        unread: applications whose file cannot be read, and why; see `recall`.
        unlearned: what Kafka has not been asked yet, and why; see `state_lib.host.discovery`.
    """

    def __init__(
        self, context: TaskContext, hosts: Sequence[HostAddress], flush_interval_s: float
    ) -> None:
        self.context = context
        self.hosts = hosts
        self._flush_interval_s = flush_interval_s
        self._lock = threading.RLock()
        self.apps: dict[str, Topology] = {}
        self.tasks: dict[tuple[str, int], StateTask] = {}
        self.failures: dict[str, str] = {}
        self.quarantined: dict[str, Quarantined] = {}
        self.unread: dict[str, str] = {}
        self.unlearned: dict[str, str] = {}
        self._lost: dict[str, LogLost] = {}
        self._opening: set[str] = set()
        self._adopting: dict[str, threading.Lock] = {}  # by app
        self._dropped: dict[str, tuple[str, int]] = {}  # app → topology topic's id, notice's epoch
        self._retry: dict[str, tuple[float, float]] = {}  # task → not before, wait after that
        self._openers = ThreadPoolExecutor(4, thread_name_prefix="open")
        self._stop = threading.Event()
        self._flusher = threading.Thread(target=self._flush_forever, name="flush", daemon=True)

    # ------------------------------------------------------------------ life

    def start(self) -> None:
        """Re-open the tasks of every application that this host remembers."""
        for left in self.context.state_dir.glob(".*.gone-*"):
            shutil.rmtree(left, ignore_errors=True)
        self.recall()
        self._flusher.start()

    def recall(self) -> None:
        """Adopt what this host remembers. What it cannot read is `unread`, and stops nothing else.

        It comes back when the file can be read, or with its driver's next claim.
        """
        unread = {}
        for app in remembered.remembered(self.context.state_dir):
            if app in self.apps:
                continue
            try:
                self._adopt(remembered.recall(self.context.state_dir / app))
            except HoldfastError as error:
                unread[app] = error.message
                if app not in self.unread:
                    log.error("not remembered", app=app, why=error.message)
        self.unread = unread

    def stop(self) -> None:
        """Flush and close every task."""
        self._stop.set()
        self.context.stopping.set()
        self._openers.shutdown(wait=True, cancel_futures=True)
        for task in list(self.tasks.values()):
            if task.is_open:
                try:
                    task.flush()
                except HoldfastError as error:
                    log.warning("flush at stop failed", task=task.name, why=error.message)
            task.close()

    @property
    def not_ready(self) -> dict[str, str]:
        """Tasks that are not open and applications that are not known, with the last reason."""
        unknown = self.unread | self.unlearned
        waiting = {app: why for app, why in unknown.items() if app not in self.apps}
        return waiting | {
            t.name: self.failures.get(t.name, "opening")
            for t in list(self.tasks.values())
            if not t.is_open
        }

    def state_of(self, task: StateTask) -> str:
        """``open``, ``opening``, ``restoring`` (records are being replayed) or ``quarantined``."""
        if task.is_open:
            return "open"
        if task.name in self.quarantined:
            return "quarantined"
        return "restoring" if task.progress.stores() else "opening"

    # ------------------------------------------------------------------ questions

    def app(self, app: str, *, learn: bool = False) -> Topology:
        """The topology of an application.

        Args:
            app: its id.
            learn: ask its topic if this host does not know it. For drivers and executors only:
                opening a task fences its owner, so a mere reader must never cause it.

        Raises:
            NotFound: no such application; lists the known ones.
            Unavailable: it may have tasks here, which this host does not know yet.
        """
        if app not in self.apps and learn:
            self._adopt(self._learn(app, None))  # without the lock: Kafka may take its time
        topology = self.apps.get(app)
        if topology is None:
            waiting = self.unlearned | self.unread
            if why := waiting.get(app) or waiting.get(EVERY):
                raise Unavailable(f"application {app!r} is not known yet: {why}", app=app)
            known = sorted(self.apps)
            raise NotFound(f"no application {app!r} here; known: {known}", app=app, known=known)
        return topology

    def learn(self, claim: Claim) -> None:
        """Adopt the application of its newest claim.

        Raises:
            MissingTopic: it was deleted meanwhile.
            Unavailable: Kafka or the disk is away.
        """
        self._adopt(self._learned(claim))

    def task(self, app: str, partition: int, *, learn: bool = False) -> StateTask:
        """A task that this host owns, opened or being opened; ``learn`` as in `app`.

        Raises:
            NotFound: no such application or partition.
            NotOwner: names the host to ask.
            Unavailable: it is opening.
        """
        task = self.owned(app, partition, learn=learn)
        if not task.is_open:
            self._open_soon(task)
            known = self._lost.get(task.name) or self.quarantined.get(task.name)
            if known is not None:
                raise from_wire(known.to_wire())
            why = self.failures.get(task.name, "it is opening or restoring")
            raise Unavailable(f"task {task.name} is not ready: {why}; try again", task=task.name)
        return task

    def owned(self, app: str, partition: int, *, learn: bool = False) -> StateTask:
        """A task that this host owns, open or not; raises as `task`.

        Unavailable: the application was dropped or deleted at this moment.
        """
        topology = self.app(app, learn=learn)
        self._require_ours(topology, partition)
        task = self.tasks.get((app, partition))
        if task is None:
            name = f"{app}/{partition}"
            raise Unavailable(f"task {name} is being given up; try again", task=name)
        return task

    def restore(self, task: StateTask, plan: RestorePlan) -> Marker:
        """Run a plan for a task of this host; see `StateTask.restore`."""
        with self._unopened(task):  # it opens itself
            marker = task.restore(plan)
        self._forget_failures(task)
        return marker

    def repair(self, task: StateTask, stores: Sequence[str] | None) -> Marker:
        """Write lost topics of a task anew and open it; see `repair_task`."""
        with self._unopened(task):
            marker = repair_task(task, stores)
        self._forget_failures(task)
        self._open_soon(task)
        return marker

    @contextmanager
    def _unopened(self, task: StateTask) -> Iterator[None]:
        """Meanwhile no opener tries to open it."""
        with self._lock:
            idle = task.name not in self._opening
            self._opening.add(task.name)
        try:
            yield
        finally:
            with self._lock:
                if idle:
                    self._opening.discard(task.name)

    def claim(self, app: str, partition: int, epoch: int) -> Marker:
        """Let the driver of an epoch take a task."""
        check_name("application", app)
        if not self._knows(app, epoch):
            self._adopt(self._learn(app, epoch))
        task = self.owned(app, partition)
        if task.declare(self.app(app)):
            self._forget_failures(task)
        return self.task(app, partition).claim(self.app(app), epoch)

    def drop(self, app: str, topic_id: str, epoch: int) -> None:
        """Close an application's tasks for good and remove its directory. Again: nothing.

        Args:
            app: its id.
            topic_id: of its topology topic.
            epoch: of the notice of its reset or deletion: older claims are ignored from now on.
        """
        with self._alone(app):
            with self._lock:
                self._dropped[app] = (topic_id, epoch)
                self.apps.pop(app, None)
                self.unread = {a: why for a, why in self.unread.items() if a != app}
            self._retire(app)
            folder = self.context.state_dir / check_name("application", app)
            if folder.exists():
                # Renamed first, so that a host that is killed here does not remember half of it.
                doomed = folder.rename(folder.with_name(f".{app}.gone-{time.time_ns()}"))
                shutil.rmtree(doomed, ignore_errors=True)
        log.info("dropped an application", app=app, epoch=epoch)

    # ------------------------------------------------------------------ inside

    def _retire(self, app: str) -> None:
        """Without the lock: a task that commits or restores is waited for."""
        doomed = {key: task for key, task in list(self.tasks.items()) if key[0] == app}
        for task in doomed.values():
            task.retire()
        with self._lock:
            for key, task in doomed.items():
                if self.tasks.get(key) is task:
                    del self.tasks[key]
                self._forget_failures(task)

    def _require_ours(self, topology: Topology, partition: int) -> None:
        if not 0 <= partition < topology.partitions:
            raise NotFound(
                f"application {topology.app!r} has tasks 0 to {topology.partitions - 1}, not "
                f"{partition}",
                app=topology.app,
                partition=partition,
            )
        owner = owner_of(topology.app, partition, self.hosts)
        if owner.id != self.context.host_id:
            raise NotOwner(
                f"task {topology.app}/{partition} belongs to host {owner.id!r}, this is "
                f"{self.context.host_id!r}: the caller's list of hosts differs from this host's",
                owner=owner.id,
                host=self.context.host_id,
            )

    def _learn(self, app: str, epoch: int | None) -> Topology:
        """Read a claim: that of ``epoch``, or the last one."""
        check_name("application", app)
        newest = newest_claim(self.context.kafka, app)
        if newest is None:
            known = sorted(self.apps)
            raise NotFound(f"no application {app!r} here; known: {known}", app=app, known=known)
        topic = topology_topic(app)
        if newest.notice is not None:
            if epoch is None or not 0 <= epoch < newest.epoch:
                raise gone(app, newest.notice)
            raise Superseded(gone(app, newest.notice).message, epoch=epoch, current=newest.epoch)
        claim = newest if epoch in (None, newest.epoch) else self._claim_at(app, epoch)
        if claim is None:
            raise NotFound(f"{topic} holds no claim at offset {epoch}", topic=topic, epoch=epoch)
        return self._learned(claim)

    def _knows(self, app: str, epoch: int) -> bool:
        """Whether a claim is the one that is known: in a topic that was made anew epochs recur."""
        known, topic = self.apps.get(app), topology_topic(app)
        if known is None or known.extra.get("epoch") != epoch:
            return False
        there = describe(self.context.kafka.admin(), [topic]).get(topic)
        return there is None or there.id == known.extra.get("topic_id")

    def _learned(self, claim: Claim) -> Topology:
        topic = topology_topic(claim.topology.app)
        topic_id = require(self.context.kafka.admin(), [topic])[topic].id
        extra = {**claim.topology.extra, "epoch": claim.epoch, "topic_id": topic_id}
        return replace(claim.topology, extra=extra)

    def _claim_at(self, app: str, epoch: int | None) -> Claim | None:
        kafka, topic = self.context.kafka, topology_topic(app)
        at = (topic, 0)
        if epoch is None or not 0 <= epoch < ends(kafka.admin(), [at])[at]:
            return None
        first = starts(kafka.admin(), [at])[at]
        for records in read(kafka, topic, 0, max(epoch, first), epoch + 1):
            return Claim.of(records[0]) if records[0].key() == app.encode() else None
        raise Superseded(
            f"the claim of epoch {epoch} was compacted away: a newer driver has claimed {topic}",
            epoch=epoch,
        )

    def _adopt(self, topology: Topology) -> None:
        with self._alone(topology.app):
            self._adopt_alone(topology)

    def _alone(self, app: str) -> threading.Lock:
        """Taken before the other lock: who comes next must not retire what this one makes."""
        with self._lock:
            return self._adopting.setdefault(app, threading.Lock())

    def _adopt_alone(self, topology: Topology) -> None:
        topic_id, epoch = topology.extra.get("topic_id"), topology.extra.get("epoch", -1)
        known = self.apps.get(topology.app)
        if known is not None and known.extra.get("topic_id") != topic_id:
            self._retire(topology.app)  # it was deleted, unknown to this host, and made anew
            self._keep_aside(topology)
        with self._lock:
            known = self.apps.get(topology.app)
            same = known is not None and known.extra.get("topic_id") == topic_id
            if same and known is not None and known.extra.get("epoch", -1) > epoch:
                return
            dropped_id, notice = self._dropped.get(topology.app, ("", -1))
            if dropped_id == topic_id and epoch < notice:
                return
            remembered.remember(self.context.state_dir / topology.app, topology)
            for partition in self._ours(topology):
                key = (topology.app, partition)
                if key not in self.tasks:
                    self.tasks[key] = StateTask(self.context, topology, partition)
                    self._open_soon(self.tasks[key])
            # Last: who does not take the lock must never find an application without its tasks.
            self.apps[topology.app] = topology

    def _keep_aside(self, topology: Topology) -> None:
        """What is left of a deleted application must not be taken for the new one's state."""
        folder = self.context.state_dir / topology.app
        if not folder.exists() or any(self._has_begun(topology, p) for p in self._ours(topology)):
            return  # or only some of its topics were made anew
        aside = folder.rename(folder.with_name(f".{topology.app}.of-before-{time.time_ns()}"))
        log.warning("kept what is left of a deleted application; remove it", folder=str(aside))

    def _has_begun(self, topology: Topology, partition: int) -> bool:
        """Whether a task has a marker, or without one a changelog: that is for a repair."""
        found = find(self.context.kafka, topology, partition)
        return found.marker.epoch >= 0 or any(log.end > 0 for log in found.logs.values())

    def _ours(self, topology: Topology) -> list[int]:
        """Partitions that belong to this host."""
        mine = self.context.host_id
        every = range(topology.partitions)
        return [p for p in every if owner_of(topology.app, p, self.hosts).id == mine]

    def _open_soon(self, task: StateTask) -> None:
        with self._lock:
            not_before, _ = self._retry.get(task.name, (0.0, 0.0))
            waits = time.monotonic() < not_before
            if waits or task.name in self._opening or self._stop.is_set():
                return
            self._opening.add(task.name)
            self._openers.submit(self._open, task)

    def _open(self, task: StateTask) -> None:
        """One attempt: tasks that cannot be opened must not hold the openers of the others."""
        started = time.monotonic()
        why: str | None = None
        try:
            marker = task.open()
        except Quarantined as error:
            why = error.message
            if task.name not in self.quarantined:
                log.error("task is quarantined", task=task.name, why=why)
            self._lost.pop(task.name, None)
            self.quarantined[task.name] = error
        except LogLost as error:
            why = error.message
            if task.name not in self._lost:
                log.error("task is not open", task=task.name, why=why)
            self.quarantined.pop(task.name, None)
            self._lost[task.name] = error
        except HoldfastError as error:
            why = error.message
            self._lost.pop(task.name, None)  # it is no reason any more
            log.warning("task is not open", task=task.name, why=why)
        except Exception as error:
            why = repr(error)
            log.exception("task is not open", task=task.name)
        else:
            log.info(
                "task is open",
                task=task.name,
                epoch=marker.epoch,
                n=marker.n,
                seconds=round(time.monotonic() - started, 3),
            )
        with self._lock:
            self._opening.discard(task.name)
            if why is None or self.tasks.get((task.topology.app, task.partition)) is not task:
                self._forget_failures(task)
                return
            self.failures[task.name] = why
            _, wait = self._retry.get(task.name, (0.0, _REOPEN_FIRST_S))
            self._retry[task.name] = (time.monotonic() + wait, min(wait * 2, _REOPEN_MOST_S))

    def _forget_failures(self, task: StateTask) -> None:
        with self._lock:
            self.failures.pop(task.name, None)
            self.quarantined.pop(task.name, None)
            self._lost.pop(task.name, None)
            self._retry.pop(task.name, None)

    def _flush_forever(self) -> None:
        while not self._stop.wait(min(_LOOK_S, self._flush_interval_s)):
            for task in list(self.tasks.values()):
                try:
                    self._keep(task)
                except HoldfastError as error:
                    log.warning("flush failed", task=task.name, why=error.message)
                except Exception:  # the other tasks need this thread
                    log.exception("flush failed", task=task.name)

    def _keep(self, task: StateTask) -> None:
        """Flush a task if it is due; open it if it is closed."""
        if not task.is_open:
            self._open_soon(task)
        elif time.monotonic() - task.flushed_at > self._flush_interval_s:
            task.flush()
