"""The plan of one batch: plain data that the driver sends to executors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from state_lib.declaration import Kept
from state_lib.processing import Processor
from state_lib.protocol.addresses import HostAddress
from state_lib.protocol.marker import NO_TIME
from state_lib.protocol.positions import Positions

SEEN, DROPPED, DEAD = -1, -2, -3
"""Kinds of entries that change no store: event times, drop counts and dead letters. Kinds from 0 on
are indexes of verbs."""
UNBOUNDED = 2**31 - 1
"""The limit of a record (bytes) in a store without one in the plan."""


@dataclass(frozen=True)
class BatchPlan:
    """Bounds and decisions of one batch, the same for all of its tasks.

    Attributes:
        epoch, batch_number: of the driver and the batch.
        from_, to: positions before and after.
        stream_time_ms: by which rows are late.
        now: wall time (ms) by which rows are too far in the future.
        max_future_ms: how far ahead of ``now`` an event time may be.
        topic_ids: of the sources.
        tasks: those that take part; None for all.
        repeated: whether it was recorded before, and these tasks have missed it.
        parked: tasks that are left out until they are back, by `state_lib.spark.parking`.
        code: fingerprint of the job.
        limits: store → greatest record (key plus value, bytes) that its topics take.
        recorded: offset in the progress log where this batch was recorded first; -1 before that.
        numbered: source partitions of a repeated batch as first recorded: rows without a key go to
            tasks by these partitions' numbers. Newer partitions have no rows in it.
        run: the batches that this one repeats together, each with decisions for its own rows.
        tick: whether it reads no records, and runs timers.
        recorded_in: Kafka's id of the progress topic; empty without processors.
        routing: digest of where rows go, see `Declaration.routing`.
        batch_time: processing time of processors (ms): wall time that never goes back. `NO_TIME`
            without processors.
        unknown: Avro schema ids that the registry did not know when the batch was recorded.
    """

    epoch: int
    batch_number: int
    from_: Positions
    to: Positions
    stream_time_ms: int
    now: int
    max_future_ms: int
    topic_ids: Mapping[str, str]
    tasks: tuple[int, ...] | None = None
    code: str = ""
    recorded: int = -1
    limits: Mapping[str, int] = field(default_factory=dict)
    repeated: bool = False
    parked: tuple[int, ...] = ()
    numbered: tuple[tuple[str, int], ...] = ()
    run: tuple[BatchPlan, ...] = ()
    tick: bool = False
    recorded_in: str = ""
    routing: str = ""
    batch_time: int = NO_TIME
    unknown: tuple[int, ...] = ()

    def sources(self) -> list[tuple[str, int]]:
        """Source partitions by the number that rows have for them."""
        known = sorted(self.to)
        return [*self.numbered, *(p for p in known if p not in self.numbered)]

    def record(self) -> dict[str, object]:
        """The record in ``<app>-progress``; for a repeated batch, with its own partitions only."""
        return {
            "epoch": self.epoch,
            "n": self.batch_number,
            "from": self._own(self.from_).to_json(),
            "to": self._own(self.to).to_json(),
            "clock": self.stream_time_ms,
            "now": self.now,
            "max_future_ms": self.max_future_ms,
            "code": self.code,
            "limits": self.limits,
            "tasks": self.tasks if self.repeated else None,
            "parked": self.parked,
            "recorded": self.recorded,
            **({"tick": True} if self.tick else {}),
            **({"routing": self.routing} if self.routing else {}),
            **({} if self.batch_time == NO_TIME else {"batch_time": self.batch_time}),
            **({"unknown_schemas": self.unknown} if self.unknown else {}),
        }

    def _own(self, positions: Positions) -> Positions:
        if not self.numbered:
            return positions
        return Positions({p: o for p, o in positions.items() if p in self.numbered})


def together(plans: Sequence[BatchPlan]) -> BatchPlan:
    """One plan for consecutive batches, with the end of the last one.

    They differ in bounds, numbers and the times that rows are compared with.
    """
    if len(plans) == 1:
        return plans[0]
    return replace(plans[-1], from_=plans[0].from_, run=tuple(plans))


@dataclass(frozen=True)
class ExchangePlan:
    """What an executor needs to bring one task's rows to its host.

    ``timeout_s``: how long an exchange may take. ``patience_s``: how long it is retried while its
    host is away or the task is opening; None: ``timeout_s``. ``processors``: numbered after
    ``kept``. ``initial``: a processor that takes its initial state, in place of a batch.
    """

    app: str
    partitions: int
    kept: tuple[Kept, ...]
    batch: BatchPlan
    hosts: tuple[HostAddress, ...]
    token: str | None
    timeout_s: float
    patience_s: float | None = None
    processors: tuple[Processor, ...] = ()
    initial: str = ""

    @property
    def beginning(self) -> Processor:
        """The processor of ``initial``."""
        return next(p for p in self.processors if p.name == self.initial)
