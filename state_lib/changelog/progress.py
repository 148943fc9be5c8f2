"""``<app>-progress``: the bounds and decisions of each batch, recorded before any task gets it.

Align and audit repeat these decisions. Records of a superseded driver may follow those of its
successor in the log, and after a crash there are records of batches that no task ever committed:
`effective` leaves both out.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import orjson
from confluent_kafka import KafkaError, Message, Producer

from state_lib.changelog.reader import read
from state_lib.changelog.topics import progress_topic
from state_lib.kafka import NO_ANSWER, Kafka, Partition, ends, starts, unavailable
from state_lib.protocol.marker import NO_TIME
from state_lib.protocol.positions import Numbers, Positions


@dataclass(frozen=True, slots=True)
class Recorded:
    """One recorded batch."""

    epoch: int
    batch_number: int
    from_: Numbers
    to: Numbers
    stream_time_ms: int
    now: int
    max_future_ms: int = 3_600_000
    aligned: bool = False
    code: str | None = None
    """Fingerprint of the job; None in records of older versions."""
    routing: str = ""
    """Digest of where the job sends rows, if it has processors; see `Declaration.routing`."""
    limits: Mapping[str, int] = field(default_factory=dict)
    """Store → greatest size (bytes) of a record in its topics; empty in records of older versions.
    """
    offset: int = -1
    """Where the batch was recorded first; repeats of it are recorded again, behind that."""
    tick: bool = False
    """Whether it reads no records, and runs timers of processors."""
    batch_time: int = NO_TIME
    """Processing time of processors; see `BatchPlan.batch_time`."""
    unknown: tuple[int, ...] = ()
    """Schema ids that the registry did not know then: records with them are dead letters."""

    @classmethod
    def from_json(
        cls, data: Mapping[str, Any], offset: int, alike: Alike | None = None
    ) -> Recorded:
        """From a record's value and offset; ``alike``: shared with the records read before."""
        first, alike = data.get("recorded", -1), alike or Alike()
        return cls(
            epoch=data["epoch"],
            batch_number=data["n"],
            from_=alike.positions(data["from"]),
            to=alike.positions(data["to"]),
            stream_time_ms=data["clock"],
            now=data["now"],
            max_future_ms=data["max_future_ms"],
            aligned=data["tasks"] is not None,
            code=data.get("code"),
            routing=data.get("routing", ""),
            limits=alike.limits(data.get("limits", {})),
            offset=offset if first < 0 else first,
            tick=bool(data.get("tick")),
            batch_time=data.get("batch_time", NO_TIME),
            unknown=tuple(data.get("unknown_schemas", ())),
        )

    def covers(self, positions: Mapping[Partition, int]) -> bool:
        """Whether a task at these positions would have this batch next."""
        return any(
            self.from_.get(p, 0) <= positions.get(p, 0) < to for p, to in self.to.items()
        ) and all(positions.get(p, 0) <= to for p, to in self.to.items())


class Alike:
    """Shares equal values among many records, which takes two thirds off their memory.

    All name the same few partitions, and each batch begins where the one before it ends.
    """

    def __init__(self) -> None:
        self._partitions: dict[Partition, Partition] = {}
        self._positions = Positions()
        self._limits: Mapping[str, int] = {}

    def positions(self, said: Mapping[str, Mapping[str, int]]) -> Positions:
        """From JSON; the object of an earlier call, if it is equal."""
        own = self._partitions.setdefault
        found = Positions({own(p, p): offset for p, offset in Positions.of(said).items()})
        if found != self._positions:
            self._positions = found
        return self._positions

    def limits(self, said: Mapping[str, int]) -> Mapping[str, int]:
        """The mapping of the last call, if it is equal."""
        if said != self._limits:
            self._limits = said
        return self._limits


class ProgressLog:
    """Writes and reads an application's progress."""

    def __init__(self, kafka: Kafka, app: str) -> None:
        self._kafka = kafka
        self._topic = progress_topic(app)

    @cached_property
    def _producer(self) -> Producer:
        """Made by `connect`, or by the first `append`: readers need none."""
        return self._kafka.producer(self._topic, **{"linger.ms": 0})

    def connect(self) -> None:
        """Connect ahead: the first `append` is quick from half a second after this on."""
        _ = self._producer

    def append(self, *records: Mapping[str, object]) -> int:
        """Write records in order, and wait until the brokers have them; returns the last offset.

        Raises:
            Unavailable: the brokers did not take one; the batch has not begun.
            KafkaRefused: this principal must not write there.
        """
        outcome: list[tuple[KafkaError | None, Message]] = []
        for record in records:
            self._producer.produce(
                self._topic,
                orjson.dumps(record),
                partition=0,
                on_delivery=lambda error, message: outcome.append((error, message)),
            )
        left = self._producer.flush(60)
        failures = [error for error, _ in outcome if error is not None]
        if left or failures:
            failure = failures[0] if failures else NO_ANSWER
            raise unavailable(f"write to {self._topic!r}", failure, self._kafka)
        return int(outcome[-1][1].offset() or 0)

    def start(self) -> int:
        """Offset of the oldest record in the topic; its end, if it is empty."""
        at = (self._topic, 0)
        return starts(self._kafka.admin(), [at])[at]

    def read(self, since: int = -1) -> list[Recorded]:
        """Every batch from an offset on, in log order. Records with a ``kind`` are no batches."""
        found, alike = self._said(since), Alike()
        return [Recorded.from_json(one, at, alike) for one, at in found if "kind" not in one]

    def parked(self, epoch: int, since: int = -1) -> list[int]:
        """Tasks that the driver of an epoch leaves out, by its last record since an offset."""
        out: list[int] = []
        for one, _ in self._said(since):
            if one.get("epoch") == epoch and "parked" in one:
                out = sorted(int(p) for p in one["parked"])
        return out

    def _said(self, since: int) -> Iterator[tuple[dict[str, Any], int]]:
        admin = self._kafka.admin()
        at = (self._topic, 0)
        first, end = starts(admin, [at])[at], ends(admin, [at])[at]
        begin = since if first <= since < end else first  # beyond: an offset of an older topic
        for messages in read(self._kafka, self._topic, 0, begin, end):
            yield from ((orjson.loads(m.value() or b"{}"), m.offset() or 0) for m in messages)


def repeats(
    at: Mapping[Partition, int], target: Mapping[Partition, int], chain: Iterable[Recorded]
) -> tuple[list[Recorded], dict[Partition, int]]:
    """The batches that lead from some positions to others, and where they end.

    Args:
        at: positions of a task.
        target: positions to bring it to.
        chain: the `effective` batches.

    Returns:
        The batches, and the positions that they lead to: ``target`` if they cover all of it.
    """
    here, found, batches, last = dict(at), list[Recorded](), list(chain), 0
    while here != target:
        # The next batch mostly follows the last one found, so the search starts there.
        order = itertools.chain(range(last, len(batches)), range(last))
        last = next((i for i in order if batches[i].covers(here)), -1)
        if last < 0:
            break
        batch = batches[last]
        here = {
            p: max(here.get(p, 0), min(batch.to.get(p, here.get(p, o)), o))
            for p, o in target.items()
        }
        found.append(batch)
    return found, here


def effective(records: Iterable[Recorded]) -> list[Recorded]:
    """The batches that count, in order: later epochs override earlier ones from where they start.

    A driver records only when it holds every task or has fenced it (`state_lib.driver.left_out`):
    what an earlier driver writes after that is left out.

    A batch that no task committed is overridden by a later one from the same positions. An aligned
    batch is recorded again under the new epoch, with the stream time it had before: it replaces
    what it covers, and what follows it still counts. Linear: only batches at the end are
    overridden, each once, and a batch that is repeated unchanged replaces itself.
    """
    chain = _Standing()
    newest = -1
    for record in records:
        if record.epoch < newest:
            continue
        newest = record.epoch
        if record.from_ == record.to:
            continue  # a tick, or initial positions: it reads no records
        if record.aligned and chain.replaces(record):
            continue
        after: list[Recorded] = []
        while chain.batches and _reaches(chain.batches[-1], record.from_):
            old = chain.pop()
            if record.aligned and _reaches(old, record.to):
                after.append(old)
        for one in (record, *reversed(after)):
            chain.push(one)
    return chain.batches


def ticks(records: Iterable[Recorded]) -> list[Recorded]:
    """The ticks that count, in order: every task takes each of them, sooner or later.

    What a driver writes after the first record of its successor does not count, as in `effective`.
    """
    found, newest = list[Recorded](), -1
    for record in records:
        if record.epoch < newest:
            continue
        newest = record.epoch
        if record.tick and not record.aligned:
            found.append(record)
    return found


class _Standing:
    """The batches that count so far, and where each begins."""

    def __init__(self) -> None:
        self.batches: list[Recorded] = []
        self._places: dict[frozenset[tuple[Partition, int]], int] = {}
        self._run = 0
        """From there on each batch begins exactly where the one before it ends."""

    def push(self, batch: Recorded) -> None:
        if self.batches and self.batches[-1].to != batch.from_:
            self._run = len(self.batches)
        self._places[frozenset(batch.from_.items())] = len(self.batches)
        self.batches.append(batch)

    def pop(self) -> Recorded:
        batch = self.batches.pop()
        self._places.pop(frozenset(batch.from_.items()), None)
        self._run = min(self._run, len(self.batches))
        return batch

    def replaces(self, again: Recorded) -> bool:
        """Replace the recorded batch that this one repeats, if only batches of its run follow."""
        place = self._places.get(frozenset(again.from_.items()), -1)
        if place < self._run or self.batches[place].to != again.to:
            return False
        if place and _reaches(self.batches[place - 1], again.from_):
            return False
        self.batches[place] = again
        return True


def _reaches(record: Recorded, positions: Mapping[Partition, int]) -> bool:
    """Whether a batch starts at or beyond some positions in every partition."""
    both = record.from_.keys() & positions.keys()
    return all(record.from_[p] >= positions[p] for p in both)
