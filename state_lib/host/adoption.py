"""The applications that a host knows, and which of their tasks are here."""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Sequence

import structlog

from state_lib.errors import HoldfastError, NotFound, NotOwner
from state_lib.host import remembered
from state_lib.host.openers import Openers
from state_lib.names import check_name
from state_lib.protocol.addresses import HostAddress
from state_lib.protocol.marker import Marker
from state_lib.protocol.placement import owner_of
from state_lib.specs import Topology
from state_lib.task import StateTask, TaskContext
from state_lib.task.claiming import judge_claim
from state_lib.task.loss import find

log = structlog.get_logger(__name__)


class Applications:
    """Of one host.

    Args:
        context: what the tasks share.
        hosts: the static list of all hosts, this one included.

    Attributes:
        apps: that this host knows.
        tasks: by application and partition.
        openers: open them.
        unread: applications whose file cannot be read, and why; see `recall`.
    """

    def __init__(self, context: TaskContext, hosts: Sequence[HostAddress]) -> None:
        self._context, self._hosts = context, hosts
        self._lock = threading.RLock()
        self.apps: dict[str, Topology] = {}
        self.tasks: dict[tuple[str, int], StateTask] = {}
        self.openers = Openers(self._lock, self._is_held)
        self.unread: dict[str, str] = {}
        self._adopting: dict[str, threading.Lock] = {}  # by app
        self._dropped: dict[str, tuple[str, int]] = {}  # app → topology topic's id, notice's epoch

    def recall(self) -> None:
        """Adopt what this host remembers. What it cannot read is `unread`, and stops nothing else.

        It comes back when the file can be read, or with its driver's next claim.
        """
        unread = {}
        for app in remembered.remembered(self._context.state_dir):
            if app in self.apps:
                continue
            try:
                self.adopt(remembered.recall(self._context.state_dir / app))
            except HoldfastError as error:
                unread[app] = error.message
                if app not in self.unread:
                    log.error("not remembered", app=app, why=error.message)
        self.unread = unread

    def adopt(self, topology: Topology) -> None:
        """Know it, remember it, and open its tasks; nothing if a newer claim of it is known.

        Raises:
            Unavailable: Kafka or the disk is away.
            TopicRecreated, Superseded: no task of it would take the claim; what was known counts.
        """
        with self._alone(topology.app):
            known = self.apps.get(topology.app)
            if known is not None and not _same_topic(known, topology):
                has_begun = self._require_newer(topology, known)
                self._retire(topology.app)  # deleted and created again, unnoticed by this host
                if not has_begun:  # or only some of its topics were created again
                    self._keep_aside(topology)
            with self._lock:
                if self._is_outdated(topology):
                    return
                remembered.remember(self._context.state_dir / topology.app, topology)
                for partition in self._ours(topology):
                    key = (topology.app, partition)
                    if key not in self.tasks:
                        self.tasks[key] = StateTask(self._context, topology, partition)
                        self.openers.open_soon(self.tasks[key])
                # Last: readers without the lock must not find an application without its tasks.
                self.apps[topology.app] = topology

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
            folder = self._context.state_dir / check_name("application", app)
            if folder.exists():
                # Renamed first, so that nothing of it is found after a kill at this point.
                doomed = folder.rename(folder.with_name(f".{app}.gone-{time.time_ns()}"))
                shutil.rmtree(doomed, ignore_errors=True)
        log.info("dropped an application", app=app, epoch=epoch)

    def require_ours(self, topology: Topology, partition: int) -> None:
        """Raise NotFound or NotOwner for what is no task of this host."""
        if not 0 <= partition < topology.partitions:
            raise NotFound(
                f"application {topology.app!r} has tasks 0 to {topology.partitions - 1}, not "
                f"{partition}",
                app=topology.app,
                partition=partition,
            )
        owner = owner_of(topology.app, partition, self._hosts)
        if owner.id != self._context.host_id:
            raise NotOwner(
                f"task {topology.app}/{partition} belongs to host {owner.id!r}, this is "
                f"{self._context.host_id!r}: the caller's list of hosts differs from this host's",
                owner=owner.id,
                host=self._context.host_id,
            )

    def _alone(self, app: str) -> threading.Lock:
        """Taken before the other lock: who comes next must not retire what this one makes."""
        with self._lock:
            return self._adopting.setdefault(app, threading.Lock())

    def _is_held(self, task: StateTask) -> bool:
        return self.tasks.get((task.topology.app, task.partition)) is task

    def _is_outdated(self, topology: Topology) -> bool:
        """Whether a newer claim of the same topic is known, or that the application ended."""
        topic_id, epoch = topology.extra.get("topic_id"), topology.extra.get("epoch", -1)
        known = self.apps.get(topology.app)
        same = known is not None and _same_topic(known, topology)
        newest = known.extra.get("epoch", -1) if same and known is not None else -1
        dropped_id, notice = self._dropped.get(topology.app, ("", -1))
        return bool(newest > epoch or (dropped_id == topic_id and epoch < notice))

    def _retire(self, app: str) -> None:
        """Without the lock: a task that commits or restores is waited for."""
        doomed = {key: task for key, task in list(self.tasks.items()) if key[0] == app}
        for task in doomed.values():
            task.retire()
        with self._lock:
            for key, task in doomed.items():
                if self.tasks.get(key) is task:
                    del self.tasks[key]
                self.openers.forget(task)

    def _keep_aside(self, topology: Topology) -> None:
        """What is left of a deleted application must not be taken for the new one's state."""
        folder = self._context.state_dir / topology.app
        if not folder.exists():
            return
        aside = folder.rename(folder.with_name(f".{topology.app}.of-before-{time.time_ns()}"))
        log.warning("kept what is left of a deleted application; remove it", folder=str(aside))

    def _require_newer(self, topology: Topology, known: Topology) -> bool:
        """Whether tasks have begun that the claim in another topic would take; else refuse it.

        What hosts remember is all that is left of a claim whose topic was deleted. Where markers
        are gone, too, and changelogs are left, what is remembered stands for them: a repair brings
        them back.
        """
        epoch, topic_id = topology.extra.get("epoch", -1), topology.extra.get("topic_id", "")
        stands = known.extra.get("epoch", -1), known.extra.get("topic_id", "")
        has_begun = False
        for p in self._ours(topology):
            found = find(self._context.kafka, topology, p)
            marker = found.marker
            if marker.epoch < 0 and any(log.end > 0 for log in found.logs.values()):
                marker = Marker(epoch=stands[0], claimed_in=stands[1])
            has_begun = has_begun or marker.epoch >= 0
            judge_claim(f"{topology.app}/{p}", marker, epoch, topic_id)
        return has_begun

    def _ours(self, topology: Topology) -> list[int]:
        """Partitions that belong to this host."""
        mine = self._context.host_id
        every = range(topology.partitions)
        return [p for p in every if owner_of(topology.app, p, self._hosts).id == mine]


def _same_topic(one: Topology, other: Topology) -> bool:
    """Whether both were learned from the same topology topic, not from one created again."""
    return bool(one.extra.get("topic_id") == other.extra.get("topic_id"))
