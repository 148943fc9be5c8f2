"""Opens a task: fences other writers, names the owner, and restores the stores by the plan."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from confluent_kafka import Message

from state_lib.changelog.log import Writer
from state_lib.changelog.reader import read_last
from state_lib.changelog.topics import (
    changelog_topic,
    commits_topic,
    dead_letter_queue,
    transactional_id,
)
from state_lib.changelog.writer import OutcomeUnknown
from state_lib.errors import Quarantined, Unavailable
from state_lib.kafka import Kafka
from state_lib.protocol.marker import RESTORING, Marker
from state_lib.restore.facts import log_ranges
from state_lib.restore.listener import RestoreListener
from state_lib.restore.local import Local, look
from state_lib.restore.plan import AUTO, RestorePlan
from state_lib.restore.request import RestoreRequest
from state_lib.restore.run import restore_task
from state_lib.restore.source import check_logs, lost_logs, met
from state_lib.specs import Topology
from state_lib.stores.task_stores import TaskStores
from state_lib.task.context import TaskContext
from state_lib.task.rewriting import Rewriting


@dataclass(frozen=True)
class OpenTask:
    """The parts of an open task."""

    writer: Writer
    stores: TaskStores
    marker: Marker
    topology: Topology


@dataclass(frozen=True)
class Opening:
    """An attempt to open a task.

    ``wanted``: `AUTO`, or the source of its state that somebody chose; ``plan_id``: of their plan.
    ``cancelled``: whether to give up. ``on_past``: called with the snapshot that the task goes back
    to, and with None at the end. ``refused``: snapshots that have proved unusable → why.
    """

    context: TaskContext
    topology: Topology
    partition: int
    path: Path
    listener: RestoreListener
    wanted: str = AUTO
    plan_id: str = ""
    cancelled: Callable[[], bool] = lambda: False
    on_past: Callable[[str | None], None] = lambda _snapshot: None
    refused: Mapping[str, str] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """``<app>/<partition>``."""
        return f"{self.topology.app}/{self.partition}"

    def plan(self) -> RestorePlan:
        """What opening would do now. Fences nobody and changes nothing."""
        local = look(self.topology, self.path, self.context.options)
        try:
            return self.request(self.newest_marker()).plan(local, complete=True, fenced=False)
        finally:
            local.close()

    def run(self) -> OpenTask:
        """Fence, name the owner, restore; and finish a restore to the past that was begun.

        Raises:
            Quarantined: the local state is lost, and a person or an orchestrator decides.
            InvalidRequest: the wanted source is not valid.
            LogLost: a topic has lost committed records.
            Unavailable: Kafka or the disk is away; try again.
        """
        context, app = self.context, self.topology.app
        changelogs = [changelog_topic(app, s.name) for s in self.topology.stores]
        context.log.require([*changelogs, commits_topic(app)])
        local = self._judged() or look(self.topology, self.path, context.options)
        writer = self.writer()
        try:
            writer.open()
            newest = self.newest_marker()
            logs = log_ranges(context.log, self.topology, self.partition)
            check_logs(self.topology, self.partition, newest, local.facts.checkpoint, logs)
            ids, starts = {t: log.topic_id for t, log in logs.items()}, met(newest, logs)
            marker = replace(newest.owned_by(context.host_id, ids), starts=starts)
            write_marker(writer, self.topology, self.partition, marker)
            stores = restore_task(self.request(marker), local)
            if marker.state == RESTORING:
                marker = self._gone_back(writer, marker, stores)
            else:
                self.rewriting().forget()  # a snapshot fetched for one that was never begun
        except OutcomeUnknown as error:
            writer.close()
            raise Unavailable(error.message, task=self.name) from error
        except BaseException:
            writer.close()
            raise
        finally:
            local.close()
        return OpenTask(writer, stores, marker, self.topology)

    def rewriting(self) -> Rewriting:
        """The second half of a restore to the past."""
        context = self.context
        return Rewriting(
            log=context.log,
            topology=self.topology,
            partition=self.partition,
            path=self.path,
            listener=self.listener,
            url=context.restore.snapshots_url or "",
            check=self.check_cancelled,
        )

    def _gone_back(self, writer: Writer, marker: Marker, stores: TaskStores) -> Marker:
        self.on_past(marker.back["snapshot"])
        write = partial(write_marker, writer, self.topology, self.partition)
        try:
            final = self.rewriting().finish(writer, marker, stores, write)
        except BaseException:
            stores.close()  # else its lock would block the next attempt
            raise
        self.on_past(None)
        return final

    def writer(self) -> Writer:
        """The writer of this task, with its topics' limits; fences nobody before it is opened.

        Raises:
            Unavailable: Kafka is away.
        """
        app = self.topology.app
        writer_id, markers = transactional_id(app, self.partition), commits_topic(app)
        return self.context.log.writer(writer_id, self.partition, markers, self._written())

    def _written(self) -> list[str]:
        """Topics that the task writes to."""
        app = self.topology.app
        changelogs = [changelog_topic(app, s.name) for s in self.topology.stores]
        outputs = [o.topic for o in self.topology.outputs]
        return [*changelogs, *outputs, dead_letter_queue(app), commits_topic(app)]

    def check_cancelled(self) -> None:
        """Raise Unavailable if the attempt was cancelled."""
        if self.cancelled():
            why = f"the task {self.name} is not to be opened any more: its host stops"
            raise Unavailable(why, task=self.name)

    def newest_marker(self) -> Marker:
        """The last one in Kafka, or that of a new task."""
        return marker_of(self.context.log.last(commits_topic(self.topology.app), self.partition))

    def request(self, marker: Marker) -> RestoreRequest:
        """A restore to this marker."""
        context = self.context
        return RestoreRequest(
            log=context.log,
            topology=self.topology,
            partition=self.partition,
            path=self.path,
            marker=marker,
            options=context.options,
            listener=self.listener,
            wanted=self.wanted,
            plan_id=self.plan_id,
            settled=marker.settled and marker.owner == context.host_id,
            restore=context.restore,
            pool=context.pool,
            cancelled=self.cancelled,
            refused=self.refused,
        )

    def _judged(self) -> Local | None:
        """In orchestrated mode, raise Quarantined for a lost store before anything is fenced."""
        if self.context.restore.mode != "orchestrated" or self.wanted != AUTO:
            return None
        request = self.request(self.newest_marker())
        if not request.settled:
            return None
        local = look(self.topology, self.path, self.context.options)
        try:
            checkpoint, plan = local.facts.checkpoint, request.plan(local, fenced=False)
            try:
                request.refuse_if_lost(plan, local)
            except Quarantined:
                logs = log_ranges(self.context.log, self.topology, self.partition)
                if not lost_logs(self.topology, request.marker, checkpoint, logs):
                    raise
                # No restore helps if the logs themselves are lost. That is checked once other
                # writers are fenced: before, logs and marker may lack their latest commits.
                return None
        except BaseException:
            local.close()
            raise
        return local


def newest_marker(kafka: Kafka, topology: Topology, partition: int) -> Marker:
    """The last marker in Kafka, or that of a new task."""
    return last_marker(kafka, topology.app, partition)


def last_marker(kafka: Kafka, app: str, partition: int) -> Marker:
    """As `newest_marker`, without a topology."""
    return marker_of(read_last(kafka, commits_topic(app), partition))


def marker_of(last: Message | None) -> Marker:
    """The marker in the last record of a partition of the commits topic, if there is one."""
    value = None if last is None else last.value()
    return Marker() if value is None else Marker.from_bytes(value)


def write_marker(writer: Writer, topology: Topology, partition: int, marker: Marker) -> None:
    """Commit a marker alone."""
    at = (commits_topic(topology.app), f"{topology.app}/{partition}".encode())
    writer.write([], at, lambda _cut: marker.to_bytes())
