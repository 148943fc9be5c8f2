"""Batches without records, that run timers: each is for every task, before whatever comes next."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import structlog

from state_lib.driver.standing import Standing
from state_lib.errors import Unavailable
from state_lib.executor.plan import BatchPlan

log = structlog.get_logger(__name__)
_MOST = 1_000
"""Ticks between two batches: a handler may register a timer of the past each time that it runs."""


@dataclass
class Ticking:
    """Of one claim.

    Attributes:
        standing: where tasks stand.
        partitions: of the application.
        record: puts a plan on record.
        run: brings one to its tasks.
        under_way: a tick that is on record, and that not all tasks are known to have taken.
    """

    standing: Standing
    partitions: int
    record: Callable[[BatchPlan], BatchPlan]
    run: Callable[[BatchPlan], None]
    under_way: BatchPlan | None = None

    def tick(self, plan: BatchPlan) -> None:
        """A batch without records: Spark's, as every other, for it runs processors.

        Raises:
            Unavailable: as of a batch; it is done again.
        """
        plan = self.record(replace(plan, tick=True))
        self.standing.told = plan.stream_time_ms
        self.under_way = plan
        self.finish()

    def drain(self, plan: Callable[[], BatchPlan], stopped: Callable[[], bool]) -> None:
        """Finish what is under way; timers that no commit got to come before the next rows.

        Args:
            plan: makes one of a batch without records.
            stopped: whether they are not to be waited for.

        Raises:
            Unavailable: stopped before they were through: the rows do not come either.
        """
        self.finish()
        for _ in range(_MOST):
            if not self.standing.is_overdue:
                return
            if stopped():
                raise Unavailable(
                    "timers that are due come before the next rows, and a stop waits for neither: "
                    "the next driver does both"
                )
            self.tick(plan())
        log.warning("timers that are due go on registering others", ticks=_MOST)

    def finish(self) -> None:
        """One that was recorded is for every task, before whatever comes next.

        Its number stays, unless a task that came back has a higher one by what it repeated.
        """
        tick, standing = self.under_way, self.standing
        if tick is None:
            return
        markers, log = standing.markers, standing.log
        there = [p for p in standing.present if markers[p].taken(log) < tick.recorded]
        if any(markers[p].batch_number >= tick.batch_number for p in there):
            standing.batch_number += 1
            tick = replace(tick, batch_number=standing.batch_number)
        tasks = None if len(there) == self.partitions else tuple(there)
        if there:
            self.run(replace(tick, tasks=tasks, parked=tuple(sorted(standing.parked))))
        self.under_way = None
