"""How far a contender has committed, sampled by one yardstick for all."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import median

from confluent_kafka import KafkaException, TopicPartition

from state_lib.kafka import Kafka

SAMPLE_S = 0.05
STALL_S = 300.0
ANSWER_S = 5.0
Ask = Callable[[], int]
Sample = tuple[float, int]


class GroupPosition:
    """Records before a consumer group's committed offsets: 0 while it has none.

    Kafka Streams commits them in its transactions, Holdfast right behind each batch. For a source
    whose offsets begin at 0, written without transactions.

    Asked by a consumer that never joins: the admin client's question ends the process
    (confluent-kafka 2.16.0, a segmentation fault while the coordinator is not found yet). It does
    not wait for open transactions, of which an exactly-once application always has one.
    """

    def __init__(self, kafka: Kafka, group: str, topic: str, partitions: int) -> None:
        level = "read_uncommitted"
        self._consumer = kafka.reader(**{"group.id": group, "isolation.level": level})
        self._asked = [TopicPartition(topic, p) for p in range(partitions)]
        self._last = 0

    def __call__(self) -> int:
        """The position; the last known one while the coordinator does not answer."""
        with contextlib.suppress(KafkaException):
            committed = self._consumer.committed(self._asked, timeout=ANSWER_S)
            self._last = sum(max(0, p.offset) for p in committed)
        return self._last


@dataclass(frozen=True)
class Span:
    """From one sample to another: what happened in between is known exactly."""

    start: Sample
    end: Sample

    @property
    def seconds(self) -> float:
        """Time between the samples."""
        return self.end[0] - self.start[0]

    @property
    def per_second(self) -> float:
        """Records per second."""
        return (self.end[1] - self.start[1]) / self.seconds


@dataclass
class Positions:
    """Samples of one run: when (``time.monotonic()``), and how many records are committed."""

    ask: Ask
    samples: list[Sample] = field(default_factory=list)

    def until(self, target: int, check: Callable[[], None]) -> None:
        """Sample until ``target`` records are committed.

        Args:
            target: records.
            check: called with every sample; raises if the contender has ended.

        Raises:
            RuntimeError: nothing was committed for `STALL_S`.
        """
        moved = time.monotonic()
        while True:
            position = self.ask()
            now = time.monotonic()
            if self.samples and position > self.samples[-1][1]:
                moved = now
            self.samples.append((now, position))
            if position >= target:
                return
            check()
            if now - moved > STALL_S:
                raise RuntimeError(f"stuck at {position} of {target} records for {STALL_S} s")
            time.sleep(SAMPLE_S)

    def between(self, start: int, end: int) -> Span:
        """From the first sample at or beyond ``start`` to the first at or beyond ``end``.

        If one commit has passed both, from the one before it, or the start.
        """
        first, last = _first(self.samples, start), _first(self.samples, end)
        if first == last and start < end:
            before = self.samples[max(0, self.samples.index(last) - 1)]
            first = _first(self.samples, before[1])
        return Span(first, last)

    def commit_every_s(self, span: Span) -> float:
        """Median time between advances within a span: no finer than the sampling."""
        inside = [s for s in self.samples if span.start[0] <= s[0] <= span.end[0]]
        advances = [b[0] for a, b in pairwise(inside) if b[1] > a[1]]
        times = [span.start[0], *advances]
        return median(b - a for a, b in pairwise(times))


def _first(samples: Sequence[Sample], position: int) -> Sample:
    return next(s for s in samples if s[1] >= position)
