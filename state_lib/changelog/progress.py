"""``<app>-progress``: every batch as it was decided, before any task saw it.

Align and audit repeat the decisions that stand here. Records of a driver that was superseded may
follow those of its successor in the log, and a crash leaves records of batches that no task ever
committed; `effective` sorts that out.
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
    """One batch as it was decided."""

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
    """Digits of where the job takes rows, if it has processors; see `Declaration.routing`."""
    limits: Mapping[str, int] = field(default_factory=dict)
    """Store → what its topics take of one record; nothing in records of older versions."""
    offset: int = -1
    """Where the batch was recorded first: what came after it lies behind, repeats of it too."""
    tick: bool = False
    """Whether it has no records, and runs timers of processors."""
    batch_time: int = NO_TIME
    """By which processors decided; see `BatchPlan.batch_time`."""
    unknown: tuple[int, ...] = ()
    """Ids of schemas that the registry did not know then: records of them are dead letters."""

    @classmethod
    def from_json(
        cls, data: Mapping[str, Any], offset: int, alike: Alike | None = None
    ) -> Recorded:
        """From a record's value and its own offset; ``alike`` of those that were read before."""
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
    """Holds once what is equal in many records: one of 100,000 takes a third of the memory then.

    All name the same few partitions, and each begins where the one before it ends.
    """

    def __init__(self) -> None:
        self._partitions: dict[Partition, Partition] = {}
        self._positions = Positions()
        self._limits: Mapping[str, int] = {}

    def positions(self, said: Mapping[str, Mapping[str, int]]) -> Positions:
        """From JSON; the ones of the last call, if they are equal."""
        own = self._partitions.setdefault
        found = Positions({own(p, p): offset for p, offset in Positions.of(said).items()})
        if found != self._positions:
            self._positions = found
        return self._positions

    def limits(self, said: Mapping[str, int]) -> Mapping[str, int]:
        """Those of the last call, if they are equal."""
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
        """Made by `connect`, or by the first `append`: who only reads needs none."""
        return self._kafka.producer(self._topic, **{"linger.ms": 0})

    def connect(self) -> None:
        """Be quick in the first `append`, half a second from now or later."""
        _ = self._producer

    def append(self, *records: Mapping[str, object]) -> int:
        """Write records, in order, and wait until the brokers have them; the offset of the last.

        Raises:
            Unavailable: they did not take one; the batch has not begun.
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
        """Offset of the oldest record that the topic holds; its end, if it holds none."""
        at = (self._topic, 0)
        return starts(self._kafka.admin(), [at])[at]

    def read(self, since: int = -1) -> list[Recorded]:
        """Every batch from an offset on, in log order. Records of a ``kind`` are others'."""
        found, alike = self._said(since), Alike()
        return [Recorded.from_json(one, at, alike) for one, at in found if "kind" not in one]

    def parked(self, epoch: int, since: int = -1) -> list[int]:
        """Tasks that the driver of an epoch has left out, by the last that it said since then."""
        out: list[int] = []
        for one, _ in self._said(since):
            if one.get("epoch") == epoch and "parked" in one:
                out = sorted(int(p) for p in one["parked"])
        return out

    def _said(self, since: int) -> Iterator[tuple[dict[str, Any], int]]:
        admin = self._kafka.admin()
        at = (self._topic, 0)
        first, end = starts(admin, [at])[at], ends(admin, [at])[at]
        begin = since if first <= since < end else first  # else it is another topic's offset
        for messages in read(self._kafka, self._topic, 0, begin, end):
            yield from ((orjson.loads(m.value() or b"{}"), m.offset() or 0) for m in messages)


def repeats(
    at: Mapping[Partition, int], target: Mapping[Partition, int], chain: Iterable[Recorded]
) -> tuple[list[Recorded], dict[Partition, int]]:
    """The batches that lead from some positions to others, and where they end.

    Args:
        at: where a task stands.
        target: where it is to stand.
        chain: the `effective` batches.

    Returns:
        The batches, and the positions that they lead to: ``target`` if they cover all of it.
    """
    here, found, batches, last = dict(at), list[Recorded](), list(chain), 0
    while here != target:
        # What comes next never lies before the one that came last: each is gone over once.
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
    """The batches that stand, in order: later epochs override earlier ones from where they start.

    A driver records only when it holds every task or has fenced it (`state_lib.driver.left_out`):
    what one of before writes after that does not stand, and is left out.

    A batch that no task committed is overridden by whatever started at the same positions later.
    An aligned batch is recorded again under the new epoch, with the stream time it had before: it
    replaces what it covers, and what follows it still stands. Linear: what is overridden is the end
    of what stood, and is gone over once; a batch that is repeated as it was takes its place.
    """
    chain = _Standing()
    newest = -1
    for record in records:
        if record.epoch < newest:
            continue
        newest = record.epoch
        if record.from_ == record.to:
            continue  # a tick, or initial positions: no records, nothing to judge
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
    """The ticks that stand, in order: every task takes each of them, late or not.

    What a driver writes after the first record of its successor does not stand, as in `effective`.
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
    """The batches that stand so far, and where each begins."""

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
        """Put a batch into the place of the same one, if all that follows is of its run."""
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
