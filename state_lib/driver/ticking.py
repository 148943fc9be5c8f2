"""Ticks: batches without records that run timers. Every task takes each, before any later batch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import structlog

from state_lib.driver.standing import Standing
from state_lib.errors import Unavailable
from state_lib.executor.plan import BatchPlan

log = structlog.get_logger(__name__)
_MOST = 1_000
"""Most ticks between two batches: a handler may register a timer that is due each time it runs."""


@dataclass
class Ticking:
    """The ticks of one claim.

    Attributes:
        standing: state of the tasks.
        partitions: of the application.
        record: records a plan.
        run: runs a plan on its tasks.
        under_way: a recorded tick that not all tasks are known to have taken.
    """

    standing: Standing
    partitions: int
    record: Callable[[BatchPlan], BatchPlan]
    run: Callable[[BatchPlan], None]
    under_way: BatchPlan | None = None

    def tick(self, plan: BatchPlan) -> None:
        """Record and run a tick, as a job of Spark's, since it runs processors.

        Raises:
            Unavailable: as for a batch; `finish` repeats it.
        """
        plan = self.record(replace(plan, tick=True))
        self.standing.told = plan.stream_time_ms
        self.under_way = plan
        self.finish()

    def drain(self, plan: Callable[[], BatchPlan], stopped: Callable[[], bool]) -> None:
        """Before a batch: finish a tick under way, and run timers that were left over.

        Args:
            plan: makes the plan of a tick.
            stopped: whether to give up.

        Raises:
            Unavailable: stopped before all were run; the batch must not run either.
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
        """Run a recorded tick on the tasks that have not taken it, before any later batch.

        It keeps its number, unless a task that came back has a higher one from its repeats.
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
