"""How many records a batch takes: few at first, many while the stream catches up."""

from __future__ import annotations

from collections.abc import Mapping

from state_lib.config import Settings
from state_lib.kafka import Kafka, Partition, ends, starts
from state_lib.restore.sample import sample

FIRST = 50_000
"""Of a JVM that is cold: the first commit should not wait for more."""
_GROWTH = 4
_FULL = 0.9  # Spark rounds each partition's share down
_SEEN = 250  # records before the end, where all is read


class Pace:
    """The size of a stream's batches, by how long the last ones took.

    A batch has costs of its own, whatever it holds: small ones catch up slowly. Large ones keep a
    stop waiting, and are memory until they are committed.

    Args:
        most: records that no batch exceeds.
        target_s: what a batch of a stream that catches up should take, in s.
    """

    def __init__(self, most: int, target_s: float) -> None:
        self.size = min(FIRST, most)
        """Most records of the next batch."""
        self._most, self._target_s = most, target_s
        self._cold = True

    def took(self, rows: int, seconds: float) -> bool:
        """Hear of a batch; returns whether `size` has changed for it.

        A full one of less than half the target asks for larger ones, one of more than twice the
        target for smaller ones, unless it was the first, in which the JVM warms up.
        """
        cold, self._cold = self._cold, False
        before = self.size
        if rows >= _FULL * before and seconds < self._target_s / 2:
            self.size = min(before * _GROWTH, self._most)
        elif not cold and rows > FIRST and seconds > self._target_s * 2:
            self.size = min(before, max(FIRST, rows // 2))
        return self.size != before


def pace_of(kafka: Kafka, positions: Mapping[Partition, int], settings: Settings) -> Pace:
    """The pace of a stream that begins at some positions.

    Bytes are bounded by those of a few records of each topic, where most are unread.

    Raises:
        Unavailable: Kafka is away.
    """
    admin = kafka.admin()
    start, end = starts(admin, positions), ends(admin, positions)
    chosen: dict[str, Partition] = {}
    for partition in sorted(positions, key=lambda p: end[p] - positions[p]):
        chosen[partition[0]] = partition
    sizes = [1.0]
    for place in chosen.values():
        at = max(start[place], min(positions[place], end[place] - _SEEN))
        if at < end[place]:
            sizes.append(sample(kafka, *place, at, end[place], places=1).record_bytes)
    most = max(1, int(settings.max_bytes_per_trigger / max(sizes)))
    return Pace(min(most, settings.max_offsets_per_trigger), settings.batch_target_s)
