"""Records the batches of one claim, and notices a progress topic that was deleted or cut."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import structlog

from state_lib.changelog.progress import ProgressLog
from state_lib.changelog.topics import progress_topic
from state_lib.driver.patience import never, patiently
from state_lib.driver.standing import Standing
from state_lib.driver.versions import cut_off
from state_lib.errors import ConfigurationError, Realign, Unavailable
from state_lib.executor.plan import BatchPlan
from state_lib.kafka import Kafka, require

log = structlog.get_logger(__name__)


class Recording:
    """Records the batches of one claim.

    With processors each record counts, those of ticks too: tasks know by the offset which ones they
    have taken, and a topic that was deleted or cut has to be noticed.

    Args:
        app: the application.
        progress: its log.
        kafka: where the log is.
        standing: positions of tasks; gets the topic's id.
        patience_s: how long Kafka may be away.
        counts: whether there are processors.
    """

    def __init__(
        self,
        app: str,
        progress: ProgressLog,
        kafka: Kafka,
        standing: Standing,
        patience_s: float,
        *,
        counts: bool,
    ) -> None:
        self._app, self._topic, self._counts = app, progress_topic(app), counts
        self._progress, self._standing, self._patience_s = progress, standing, patience_s
        if counts:
            facts = patiently(lambda: require(kafka.admin(), [self._topic]), patience_s)
            standing.log = facts[self._topic].id

    def check(self) -> None:
        """Refuse to go on if the log has lost ticks that tasks have missed.

        Raises:
            ConfigurationError: names the tasks, and what can be done.
        """
        standing, start = self._standing, patiently(self._progress.start, self._patience_s)
        if tasks := cut_off(standing.markers, standing.log, start):
            raise ConfigurationError(
                f"tasks {tasks} of {self._app!r} stand behind others, or behind what was written "
                f"before a restore, and {self._topic!r} begins at offset {start}: some ticks "
                "that they have to repeat are not there any more, and timers would run in other "
                "batches than they did. After a restore take a later snapshot. Or, if they may, "
                "delete that topic: the next start makes it anew",
                tasks=tasks,
                start=start,
            )

    def begin(self, plan: BatchPlan) -> tuple[int, list[int]]:
        """Write the first record of a claim.

        Returns:
            Its offset, and the present tasks that have taken a record at that offset or a higher
            one: the topic has lost it, by an unclean election perhaps.
        """
        standing, begin = self._standing, self._progress.append(plan.record())
        beyond = [p for p in standing.present if standing.markers[p].taken(standing.log) >= begin]
        if beyond:
            log.warning("the progress topic has lost its end", end=begin, tasks=beyond)
        return begin, beyond

    def put(self, plan: BatchPlan, stopped: Callable[[], bool] = never) -> BatchPlan:
        """Record a plan; returns it with its offset.

        Raises:
            Realign: the progress topic is another one than when the driver started. Or it is not
                known whether a tick was recorded, and so is for every task: align finds out.
            Unavailable: as `ProgressLog.append`.
        """
        try:
            offset = patiently(
                lambda: self._progress.append(plan.record()), self._patience_s, stopped
            )
        except Unavailable as error:
            if not plan.tick:  # a batch that no task takes is overridden by the next one
                raise
            raise Realign(
                f"a tick of {self._app!r} may be on record or not: {error.message}. The stream is "
                "started again"
            ) from error
        if self._counts and offset <= self._standing.recorded:
            raise Realign(
                f"the progress topic of {self._app!r} was deleted or has lost its end: a batch was "
                f"recorded at offset {offset}, and tasks have taken that of "
                f"{self._standing.recorded}. The stream is started again"
            )
        return replace(plan, recorded=offset)
