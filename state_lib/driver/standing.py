"""The positions of an application's tasks, as its driver knows them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import reduce

from state_lib.protocol.marker import NO_TIME, Marker
from state_lib.protocol.positions import Numbers, Positions


@dataclass
class Standing:
    """The state of all tasks, as the driver knows it from their markers."""

    epoch: int
    markers: list[Marker]
    topic_ids: Mapping[str, str]
    batch_number: int = 0
    positions: Numbers = field(default_factory=Positions)
    told: int = NO_TIME
    """The greatest recorded stream time: a task may be at it, though its answer was lost."""
    parked: dict[int, str] = field(default_factory=dict)
    """Tasks that are left out until they are back, and why; see `state_lib.spark.parking`."""
    log: str = ""
    """Kafka's id of the progress topic; empty without processors, which alone need it."""

    @property
    def stream_time_ms(self) -> int:
        """The greatest stream time of any task. Never less than before."""
        return max(self.told, *(m.stream_time_ms for m in self.markers))

    @property
    def recorded(self) -> int:
        """Offset in the progress log of the last record that the present tasks have taken."""
        return max(self.markers[p].taken(self.log) for p in self.present)

    @property
    def batch_time(self) -> int:
        """The greatest batch time of any task (ms)."""
        return max(m.batch_time_ms for m in self.markers)

    def is_due(self, stream_time_ms: int, now: int) -> bool:
        """Whether a timer of a task that is not parked is due; see `BatchPlan.batch_time`."""
        times = {"eventtime": stream_time_ms, "processingtime": max(now, self.batch_time)}
        due = (self.markers[p].due for p in self.present)
        return any(at <= times.get(mode, NO_TIME) for one in due for mode, at in one.items())

    @property
    def is_overdue(self) -> bool:
        """Whether a task that is not parked has left timers that were due."""
        return any(self.markers[p].overdue for p in self.present)

    @property
    def present(self) -> list[int]:
        """The tasks that are not parked."""
        return [p for p in range(len(self.markers)) if p not in self.parked]

    @property
    def is_level(self) -> bool:
        """Whether all tasks that are not parked are known to be at the same stream time and commit.

        Savepoints need one commit of all.
        """
        present = [self.markers[p] for p in self.present]
        return (
            all(m.stream_time_ms == self.stream_time_ms for m in present)
            and len({m.batch_number for m in present}) == 1
        )

    @property
    def maxima(self) -> Positions:
        """Greatest event time per source partition, over all tasks."""
        return reduce(Positions.greatest, (m.maxima for m in self.markers), Positions())
