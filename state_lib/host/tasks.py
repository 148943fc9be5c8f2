"""The tasks that a host owns: looked up for requests, claimed, kept open and flushed."""

from __future__ import annotations

import contextlib
import shutil
import threading
import time
from collections.abc import Iterator, Sequence

import structlog

from state_lib.changelog.topics import changelog_topic
from state_lib.errors import HoldfastError, NotFound, Unavailable
from state_lib.host import learning
from state_lib.host.adoption import Applications
from state_lib.host.disk import DiskWatch
from state_lib.host.restore_jobs import RestoreJobs
from state_lib.names import check_name
from state_lib.protocol.addresses import HostAddress
from state_lib.protocol.marker import Marker
from state_lib.restore.plan import RestorePlan
from state_lib.specs import Topology
from state_lib.task import StateTask, TaskContext
from state_lib.task.past import Past
from state_lib.task.repairing import repair_task

log = structlog.get_logger(__name__)
_LOOK_S = 0.5
LOOKED_UP_S = 10.0
"""How long a claim waits while another one is looked up."""
LONG_TAIL, SOONER = 25_000, 4
"""A task with so many records to replay after a kill is flushed so many times as often. A restart
of a busy task is short then, and one with little to replay writes no small files [tried: a quarter
of a percent of a core for 2,500 changes a second]."""
EVERY = "(applications)"
"""Stands in readiness for those that are not known yet; no application's id may look like it."""


class TaskManager:
    """Owns this host's tasks.

    Args:
        context: what the tasks share.
        hosts: the static list of all hosts, this one included.
        flush_interval_s: a task's stores are made durable at least that often, so that a killed
            host replays at most what was committed since; sooner where that is much.

    Attributes:
        applications: that this host knows; ``apps`` and ``tasks`` are theirs.
        openers: of its tasks.
        unlearned: what Kafka has not been asked yet, and why; see `state_lib.host.discovery`.
        disk: that its directories are on.
        restores: that somebody asked for.
    """

    def __init__(
        self, context: TaskContext, hosts: Sequence[HostAddress], flush_interval_s: float
    ) -> None:
        self.context = context
        self.hosts = hosts
        self._flush_interval_s = flush_interval_s
        self.applications = Applications(context, hosts)
        self.openers = self.applications.openers
        self.apps, self.tasks = self.applications.apps, self.applications.tasks
        self.unlearned: dict[str, str] = {}
        self.disk = DiskWatch(context.state_dir)
        self.restores = RestoreJobs(self.restore)
        self._claimed: dict[str, threading.Lock] = {}  # by app
        self._stop = threading.Event()
        self._flusher = threading.Thread(target=self._flush_forever, name="flush", daemon=True)

    # ------------------------------------------------------------------ life

    def start(self) -> None:
        """Re-open the tasks of every application that this host remembers."""
        for left in self.context.state_dir.glob(".*.gone-*"):
            shutil.rmtree(left, ignore_errors=True)
        self.applications.recall()
        self._flusher.start()

    def stop(self) -> None:
        """Flush and close every task."""
        self._stop.set()
        self.context.stopping.set()
        self.openers.stop()
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
        unknown = self.applications.unread | self.unlearned
        waiting = {app: why for app, why in unknown.items() if app not in self.apps}
        return waiting | {
            t.name: self.openers.failures.get(t.name, "opening")
            for t in list(self.tasks.values())
            if not t.is_open
        }

    def state_of(self, task: StateTask) -> str:
        """``open``, ``opening``, ``restoring`` or ``quarantined``.

        Restoring: records are being replayed, or a restore runs that somebody asked for.
        """
        if task.is_open:
            return "open"
        if self.restores.is_running(task):
            return "restoring"
        if task.name in self.openers.quarantined:
            return "quarantined"
        return "restoring" if task.past or task.progress.stores() else "opening"

    # ------------------------------------------------------------------ questions

    def app(self, app: str, *, learn: bool = False) -> Topology:
        """The topology of an application.

        Args:
            app: its id.
            learn: ask its topic if this host does not know it. For drivers and executors only:
                opening a task fences its owner, so a mere reader must never cause it.

        Raises:
            NotFound: no such application; names this host and lists the known ones.
            Unavailable: it may have tasks here, which this host does not know yet.
        """
        if app not in self.apps and learn:
            self._learn(app, None)  # without the lock: Kafka may be slow
        topology = self.apps.get(app)
        if topology is None:
            waiting = self.unlearned | self.applications.unread
            if why := waiting.get(app) or waiting.get(EVERY):
                raise Unavailable(f"application {app!r} is not known yet: {why}", app=app)
            known = sorted(self.apps)
            host = self.context.host_id
            raise NotFound(
                f"host {host!r} knows no application {app!r}; known: {known}. Correct the name, or "
                f"start its job: hosts learn of it by its claim ('holdfast drivers {app}')",
                app=app,
                known=known,
            )
        return topology

    def task(self, app: str, partition: int, *, learn: bool = False) -> StateTask:
        """A task that this host owns, opened or being opened; ``learn`` as in `app`.

        Raises:
            NotFound: no such application or partition.
            NotOwner: names the host to ask.
            Unavailable: it is opening.
        """
        task = self.owned(app, partition, learn=learn)
        if not task.is_open:
            self.openers.open_soon(task)
            self.openers.refuse(task)
        return task

    def owned(self, app: str, partition: int, *, learn: bool = False) -> StateTask:
        """A task that this host owns, open or not; raises as `task`.

        Unavailable: the application was dropped or deleted at this moment.
        """
        topology = self.app(app, learn=learn)
        self.applications.require_ours(topology, partition)
        task = self.tasks.get((app, partition))
        if task is None:
            name = f"{app}/{partition}"
            raise Unavailable(f"task {name} is being given up; try again", task=name)
        return task

    def restore(self, task: StateTask, plan: RestorePlan) -> Marker:
        """Run a plan for a task of this host; see `StateTask.restore`."""
        task.opening().check_cancelled()  # it may have waited long
        with self.openers.kept_away(task):  # `restore` opens the task itself
            marker = task.restore(plan)
        self.openers.forget(task)
        return marker

    def go_back(self, task: StateTask, past: Past) -> Marker:
        """Restore a task of this host to the past; see `StateTask.go_back`."""
        with self.openers.kept_away(task):
            marker = task.go_back(past)
        self.openers.forget(task)
        return marker

    def repair(self, task: StateTask, stores: Sequence[str] | None) -> Marker:
        """Rewrite lost topics of a task and open it; see `repair_task`."""
        with self.openers.kept_away(task):
            marker = repair_task(task, stores)
        self.openers.forget(task)
        self.openers.open_soon(task)
        return marker

    def claim(self, app: str, partition: int, epoch: int, topic_id: str | None = None) -> Marker:
        """Let the driver of an epoch take a task.

        Args:
            app: its application.
            partition: of the task.
            epoch: of the driver's claim.
            topic_id: of the topology topic that holds the claim; None: Kafka is asked each time.

        Raises:
            Unavailable: the claim is being looked up, or the task is opening; try again.
            HoldfastError: as `state_lib.host.learning.learn` and `StateTask.claim`.
        """
        check_name("application", app)
        with self._looking_up(app, epoch):  # one look-up serves all callers
            known = self.apps.get(app)
            if not learning.is_of_claim(self.context.kafka, known, app, epoch, topic_id):
                self._learn(app, epoch, topic_id)
        task, topology = self.owned(app, partition), self.app(app)
        if topic_id is not None and topic_id != topology.extra.get("topic_id"):
            raise Unavailable(
                f"application {app!r} was claimed in another topic meanwhile", app=app
            )
        if task.declare(topology):
            self.openers.forget(task)
        return self.task(app, partition).claim(topology, epoch)

    # ------------------------------------------------------------------ inside

    @contextlib.contextmanager
    def _looking_up(self, app: str, epoch: int) -> Iterator[None]:
        """Hold the lock, or raise Unavailable: Kafka may take longer than claimants wait."""
        lock = self._claimed.setdefault(app, threading.Lock())
        if not lock.acquire(timeout=LOOKED_UP_S):
            raise Unavailable(
                f"a claim of {app!r} is being looked up in Kafka, for more than {LOOKED_UP_S:.0f} "
                f"s; claim with epoch {epoch} again",
                app=app,
                epoch=epoch,
            )
        try:
            yield
        finally:
            lock.release()

    def _learn(self, app: str, epoch: int | None, topic_id: str | None = None) -> None:
        known = list(self.apps)
        found = learning.learn(self.context.kafka, app, epoch, known, topic_id)
        self.applications.adopt(found)

    def _flush_forever(self) -> None:
        while not self._stop.wait(min(_LOOK_S, self._flush_interval_s)):
            with contextlib.suppress(OSError):
                self.disk.pass_by()
            for task in list(self.tasks.values()):
                try:
                    self._keep(task)
                except HoldfastError as error:
                    log.warning("flush failed", task=task.name, why=error.message)
                except Exception:  # the thread goes on for the other tasks
                    log.exception("flush failed", task=task.name)

    def _keep(self, task: StateTask) -> None:
        """Flush a task if it is due; open it if it is closed."""
        if not task.is_open:
            self.openers.open_soon(task)
            return
        since_s, most_s = time.monotonic() - task.flushed_at, self._flush_interval_s
        if since_s > most_s or (since_s > most_s / SOONER and tail_of(task) >= LONG_TAIL):
            task.flush()


def tail_of(task: StateTask) -> int:
    """About how many records a kill now would have replayed: offsets since the last flush."""
    then, now = task.flushed, task.marker.committed
    known = {} if then is None else then.committed
    app, on_disk = task.topology.app, (s for s in task.topology.stores if s.backend != "memory")
    topics = [changelog_topic(app, spec.name) for spec in on_disk]
    return sum(now.get(topic, 0) - known.get(topic, 0) for topic in topics)
