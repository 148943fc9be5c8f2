"""How many records a batch takes: few at first, many while the stream catches up (ADR 0015)."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from state_lib.changelog.sample import sample
from state_lib.config import Settings
from state_lib.kafka import Kafka, Partition, ends, starts

_GROWTH = 4
_FULL = 0.9  # Spark rounds each partition's share down
_CALM_S = 60.0
_SEEN = 250  # records to sample before the end of what is unread


class BatchSize:
    """The size of a stream's batches, from how long the last ones took.

    Each batch has a fixed cost, so small ones catch up slowly. Large ones delay a stop, and are
    held in memory until they are committed.

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
        """Take a batch's size and time into account; returns whether `records` has changed.

        A full batch that took less than half of the target makes the next ones larger. One that
        took more than twice the target makes them smaller, except the first, in which the JVM warms
        up.
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
        """Go back to the first size after a minute without larger batches; whether it changed.

        Later records may be larger than those that the present size was found with.
        """
        if self.records <= self._first or self._now() - self._large_at < _CALM_S:
            return False
        self.records = self._first
        return True

    def within(self, kafka: Kafka, positions: Mapping[Partition, int]) -> int:
        """`records`, or fewer if the bound of bytes allows fewer from some positions on.

        Raises:
            Unavailable: Kafka is away.
        """
        return min(self.records, records_within(kafka, positions, self._most_bytes))


def records_within(kafka: Kafka, positions: Mapping[Partition, int], bound: int) -> int:
    """How many records from some positions on have at most ``bound`` bytes.

    Estimated by some records of each topic, from its partition with the most unread ones.

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
