"""How many records a batch takes: few at first, many while the stream catches up.

(docs/adr/0015)
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from state_lib.changelog.sample import sample
from state_lib.config import Settings
from state_lib.kafka import Kafka, Partition, ends, starts

_GROWTH = 4
_FULL = 0.9  # Spark rounds each partition's share down
_CALM_S = 60.0
_SEEN = 250  # records before the end, where all is read


class BatchSize:
    """The size of a stream's batches, by how long the last ones took.

    A batch has costs of its own, whatever it holds: small ones catch up slowly. Large ones keep a
    stop waiting, and are memory until they are committed.

    Args:
        settings: the sizes of the first batch and of the largest, and how long one should take.
        now: monotonic time, s.
    """

    def __init__(self, settings: Settings, now: Callable[[], float] = time.monotonic) -> None:
        self._most = settings.max_offsets_per_trigger
        self._first = min(settings.first_offsets_per_trigger, self._most)
        self._target_s, self._now = settings.batch_target_s, now
        self._most_bytes = settings.max_bytes_per_trigger
        self._cold, self._large_at = True, now()
        self.records = self._first
        """Most records of the next batch."""

    def took(self, rows: int, seconds: float) -> bool:
        """Hear of a batch; returns whether `records` has changed for it.

        A full one of less than half the target asks for larger ones, one of more than twice the
        target for smaller ones, unless it was the first, in which the JVM warms up.
        """
        cold, self._cold = self._cold, False
        before = self.records
        if rows > self._first:
            self._large_at = self._now()
        if rows >= _FULL * before and seconds < self._target_s / 2:
            self.records = min(before * _GROWTH, self._most)
            self._large_at = self._now()
        elif not cold and rows > self._first and seconds > self._target_s * 2:
            self.records = min(before, max(self._first, rows // 2))
        return self.records != before

    def calmed(self) -> bool:
        """Whether `records` is the first size again, as no batch was larger for a minute.

        What comes next is not known: it may be larger records than those of before.
        """
        if self.records <= self._first or self._now() - self._large_at < _CALM_S:
            return False
        self.records = self._first
        return True

    def within(self, kafka: Kafka, positions: Mapping[Partition, int]) -> int:
        """`records`, or as many as bytes allow of a batch that begins at some positions.

        Raises:
            Unavailable: Kafka is away.
        """
        return min(self.records, records_within(kafka, positions, self._most_bytes))


def records_within(kafka: Kafka, positions: Mapping[Partition, int], bound: int) -> int:
    """How many records of a batch that begins at some positions have at most ``bound`` bytes.

    By a few records of each topic, where most are unread.

    Raises:
        Unavailable: Kafka is away.
    """
    admin = kafka.admin()
    start, end = starts(admin, positions), ends(admin, positions)
    chosen: dict[str, Partition] = {}
    for one in sorted(positions, key=lambda p: (end[p] - positions[p], end[p] - start[p])):
        chosen[one[0]] = one
    sizes = [1.0]
    for place in chosen.values():
        at = max(start[place], min(positions[place], end[place] - _SEEN))
        if at < end[place]:
            sizes.append(sample(kafka, *place, at, end[place], places=1).record_bytes)
    return max(1, int(bound / max(sizes)))
