"""Tasks that a driver starts without: claimed in Kafka, so that nobody else commits to them."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import replace

import structlog

from state_lib.changelog.topics import commits_topic, transactional_id
from state_lib.changelog.writer import OutcomeUnknown, TransactionalWriter
from state_lib.driver.epochs import Epoch
from state_lib.errors import KafkaRefused, Unavailable
from state_lib.kafka import Kafka, TopicFacts
from state_lib.protocol.marker import RESTORING, Marker, Verdict, now_ms
from state_lib.specs import Topology
from state_lib.task.claiming import judge_claim
from state_lib.task.opening import last_marker, write_marker

log = structlog.get_logger(__name__)


class LeftOut:
    """Tasks whose hosts could not be reached for a while when the driver started.

    Only tasks with a position in every source partition: their next batch is on record. A task that
    is being restored to the past is waited for, as its published positions are known only after
    that.

    A host that hangs may be in the middle of a commit for the driver before. So this driver fences
    its writer, as another host would, and writes the claim to the task's marker itself: when the
    host is back it finds the task claimed.

    Args:
        kafka: connection; its principal needs the rights of a host's writer, else no task is left
            out.
        topology: of the application.
        sources: facts of its source topics.
        after_s: how long missing tasks are waited for, once others are taken.

    Attributes:
        parked: task → why it is away.
    """

    def __init__(
        self, kafka: Kafka, topology: Topology, sources: Mapping[str, TopicFacts], after_s: float
    ) -> None:
        self._kafka, self._topology, self._after_s = kafka, topology, after_s
        self._wanted = {(t, p) for t, facts in sources.items() for p in range(facts.partitions)}
        self._since: float | None = None
        self._refused = False
        self.parked: dict[int, str] = {}

    def of(self, epoch: Epoch) -> Callable[[Mapping[int, Unavailable]], dict[int, Marker]]:
        """For the claim of an epoch: leaves tasks out, and returns their markers."""
        return lambda away: self._park(epoch, away)

    def _park(self, epoch: Epoch, away: Mapping[int, Unavailable]) -> dict[int, Marker]:
        if self._since is None:
            self._since = time.monotonic()
        if time.monotonic() - self._since < self._after_s or self._refused:
            return {}
        out: dict[int, Marker] = {}
        for task, why in away.items():
            if why.details.get("past") is not None or not self._is_known(task):
                continue
            try:
                out[task] = self._take(epoch, task)
            except KafkaRefused as error:
                self._refused = True
                log.warning("tasks that are away are waited for", why=error.message)
                break
            except (Unavailable, OutcomeUnknown) as error:
                log.warning("a task that is away is waited for", partition=task, why=error.message)
                continue
            self.parked[task] = why.message
            log.warning("parked a task", task=f"{self._topology.app}/{task}", why=why.message)
        return out

    def _is_known(self, task: int) -> bool:
        marker = last_marker(self._kafka, self._topology.app, task)
        return self._wanted <= set(marker.positions) and marker.state != RESTORING

    def _take(self, epoch: Epoch, task: int) -> Marker:
        """Fence its host's writer, and claim it; raises as `judge_claim` and the writer."""
        app = self._topology.app
        own = transactional_id(app, task)
        with closing(
            TransactionalWriter(self._kafka, own, task, topic=commits_topic(app))
        ) as writer:
            writer.open()
            marker = last_marker(self._kafka, app, task)
            if judge_claim(f"{app}/{task}", marker, epoch.number, epoch.topic_id) is Verdict.APPLY:
                marker = replace(
                    marker.claimed_by(epoch.number, marker.owner, epoch.topic_id),
                    settled=marker.settled,
                    written_at=now_ms(),
                )
                write_marker(writer, self._topology, task, marker)
        return marker
