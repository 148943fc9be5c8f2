"""Stream time of an application: which rows are late is the same for every repeat (ADR 0002)."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from state_lib.kafka import Partition
from state_lib.protocol.marker import NO_TIME


def next_stream_time(
    previous: int, maxima: Mapping[Partition, int], unread: Collection[Partition]
) -> int:
    """The stream time (ms) of the next batch, by which rows are late and windows close.

    Args:
        previous: stream time of the batch before.
        maxima: greatest event time of earlier batches, per source partition.
        unread: source partitions that hold records at or beyond the batch's start.

    Returns:
        The greater of ``previous`` and the least, over partitions with unread records, of their
        greatest event time so far; with nothing unread, the greatest of all. A partition that was
        never read holds stream time back, one that is read to its end does not.
    """
    seen = [maxima.get(p, NO_TIME) for p in unread]
    reached = min(seen) if seen else max(maxima.values(), default=NO_TIME)
    return max(previous, reached)
