"""What one batch is: plain data that travels from the driver to the executors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from state_lib.declaration import Kept
from state_lib.processing import Processor
from state_lib.protocol.addresses import HostAddress
from state_lib.protocol.marker import NO_TIME
from state_lib.protocol.positions import Positions

SEEN, DROPPED, DEAD = -1, -2, -3
"""Kinds of entries that change no store: they carry event times, drop counts and dead letters.
Kinds from 0 on are indexes of verbs."""
UNBOUNDED = 2**31 - 1
"""The limit of a record (bytes) where a plan has none of its store."""


@dataclass(frozen=True)
class BatchPlan:
    """Bounds and judgement of one batch, the same for every task of it.

    Attributes:
        epoch, batch_number: of the driver and the batch.
        from_, to: positions before and after.
        stream_time_ms: by which lateness is judged.
        now: wall time (ms) by which "too far in the future" is judged.
        max_future_ms: how far ahead of ``now`` an event time may be.
        topic_ids: of the sources.
        tasks: those that take part; None for all.
        repeated: whether it was decided before, and these tasks have missed it.
        parked: tasks that are left out until they are back, by `state_lib.spark.parking`.
        code: fingerprint of the job.
        limits: store → what its topics take of one record (key plus value, bytes).
        recorded: offset in the progress log where this batch was recorded first; -1 before that.
        numbered: source partitions of a repeated batch as it was first recorded: which task has a
            row without a key goes by their numbers. There are no rows of others, which are newer.
        run: the batches that this one repeats together, each of which judges its own rows.
        tick: whether it has no records, and runs timers.
        recorded_in: Kafka's id of the progress topic; empty without processors.
        routing: digits of where rows go, as `Declaration.routing`.
        batch_time: processing time of processors (ms): wall time, but it never goes back as that
            may. `NO_TIME` without any.
        unknown: ids of schemas of Avro that the registry did not know when it was decided.
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
        """Source partitions in the order in which rows number them."""
        known = sorted(self.to)
        return [*self.numbered, *(p for p in known if p not in self.numbered)]

    def record(self) -> dict[str, object]:
        """As ``<app>-progress`` keeps it: of a repeated batch, its own source partitions."""
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
    """One plan for batches that follow one another: it ends as the last one, which is the latest.

    What differs among them are bounds, numbers, and what rows are judged by.
    """
    if len(plans) == 1:
        return plans[0]
    return replace(plans[-1], from_=plans[0].from_, run=tuple(plans))


@dataclass(frozen=True)
class ExchangePlan:
    """Everything an executor needs to carry one task's rows to its host.

    ``timeout_s``: how long an exchange may take. ``patience_s``: how long it is tried again while
    its host is away, or the task is opening; None: as long. ``processors``: their numbers follow
    those of ``kept``. ``initial``: the processor that takes its initial state, and no batch.
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
