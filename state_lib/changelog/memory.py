"""A commit log in memory, for tests of pipelines without a broker.

It has the properties that tasks rely on: a commit becomes visible whole or not at all, opening a
writer fences the one before, and the end of a transaction takes an offset. Nothing is compacted or
deleted, and nothing survives the process.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from confluent_kafka import TIMESTAMP_CREATE_TIME, Message

from state_lib.changelog.limits import USUAL
from state_lib.changelog.log import LogRange, Writer
from state_lib.changelog.reader import BATCH
from state_lib.changelog.sample import Sample
from state_lib.changelog.writer import Headers, MakeMarker, Records, record_times
from state_lib.errors import MissingTopic, NotOwner, StateCorrupt, TooLarge
from state_lib.protocol.marker import now_ms


@dataclass
class _Partition:
    records: list[Message] = field(default_factory=list)
    end: int = 0


class MemoryLog:
    """Topics in partitions, as lists of records. Safe for use by several threads.

    Args:
        topics: name → number of partitions.
        limit: the greatest key plus value (bytes) that every topic takes.
    """

    def __init__(self, topics: dict[str, int], limit: int = USUAL) -> None:
        self.limit = limit
        self._topics = {name: [_Partition() for _ in range(n)] for name, n in topics.items()}
        self._epochs: dict[str, int] = {}
        self._lock = threading.Lock()

    @property
    def topics(self) -> dict[str, int]:
        """Name → number of partitions."""
        return {name: len(partitions) for name, partitions in self._topics.items()}

    def require(self, topics: Iterable[str]) -> None:
        """See `CommitLog`."""
        for topic in topics:
            self._partitions(topic)

    def writer(self, writer_id: str, partition: int, marker: str, topics: Sequence[str]) -> Writer:
        """See `CommitLog`."""
        self.require([marker, *topics])
        return MemoryWriter(self, writer_id, partition)

    def ranges(self, topics: Sequence[str], partition: int) -> dict[str, LogRange]:
        """See `CommitLog`."""
        return {t: LogRange(_id(t), 0, end) for t, end in self.ends(topics, partition).items()}

    def ends(self, topics: Sequence[str], partition: int) -> dict[str, int]:
        """See `CommitLog`."""
        with self._lock:
            return {topic: self._partitions(topic)[partition].end for topic in topics}

    def read(
        self, topic: str, partition: int, start: int, end: int, batch: int = BATCH
    ) -> Iterator[list[Message]]:
        """See `CommitLog`."""
        with self._lock:
            there = self._partitions(topic)[partition]
            found = [m for m in there.records if start <= (m.offset() or 0) < end]
            last = there.end
        if start < end and start > last:
            raise StateCorrupt(
                f"offset {start} of {topic}/{partition} is beyond the log, which ends at {last}",
                start=start,
                end=end,
            )
        for at in range(0, len(found), batch):
            yield found[at : at + batch]

    def last(self, topic: str, partition: int) -> Message | None:
        """See `CommitLog`."""
        with self._lock:
            records = self._partitions(topic)[partition].records
            return records[-1] if records else None

    def sample(self, topic: str, partition: int, start: int, end: int) -> Sample:
        """See `CommitLog`."""
        found = [m for some in self.read(topic, partition, start, end) for m in some]
        if not found:
            return Sample()
        size = sum(len(m.key() or b"") + len(m.value() or b"") for m in found)
        return Sample(size / len(found), len(found) / (end - start))

    def retention_ms(self, topic: str) -> int:
        """See `CommitLog`: never."""
        self.require([topic])
        return -1

    def keep_forever(self, topic: str) -> None:
        """See `CommitLog`: nothing to do."""
        self.require([topic])

    # ------------------------------------------------------------------ of writers

    def fence(self, writer_id: str) -> int:
        """The epoch of a newly opened writer; earlier ones of its id cannot write any more."""
        with self._lock:
            self._epochs[writer_id] = self._epochs.get(writer_id, -1) + 1
            return self._epochs[writer_id]

    def check(self, writer_id: str, epoch: int) -> None:
        """Raise NotOwner for a writer that was fenced, or never opened."""
        newest = self._epochs.get(writer_id, -1)
        if epoch < 0 or epoch != newest:
            raise NotOwner(
                f"another writer has taken over {writer_id!r}: its epoch is {newest}, not {epoch}",
                epoch=epoch,
                current=newest,
            )

    def next_offsets(self, partition: int, topics: Iterable[str]) -> dict[str, int]:
        """The offset of each topic's next record in a partition."""
        return self.ends(list(topics), partition)

    def append(self, writer_id: str, epoch: int, partition: int, cut: Sequence[Message]) -> None:
        """One transaction: all records, then its end, which takes an offset of each partition.

        Raises:
            NotOwner: the writer was fenced; nothing was written.
        """
        with self._lock:
            self.check(writer_id, epoch)
            for topic in {str(m.topic()) for m in cut}:
                there, new = self._topics[topic][partition], [m for m in cut if m.topic() == topic]
                there.records += new
                there.end += len(new) + 1

    def _partitions(self, topic: str) -> list[_Partition]:
        found = self._topics.get(topic)
        if found is None:
            raise MissingTopic(
                f"topic {topic!r} does not exist; those that do: {sorted(self._topics)}",
                topic=topic,
            )
        return found


class MemoryWriter:
    """Writes the commits of one task to a `MemoryLog`, one at a time, as Kafka's producer does."""

    def __init__(self, log: MemoryLog, writer_id: str, partition: int) -> None:
        self._log, self._id, self._partition = log, writer_id, partition
        self._epoch = -1

    def open(self) -> None:
        """See `Writer`."""
        self._epoch = self._log.fence(self._id)

    def limit(self, topic: str) -> int:
        """See `Writer`."""
        self._log.require([topic])
        return self._log.limit

    def write(
        self, records: Sequence[Records], marker: tuple[str, bytes], make_marker: MakeMarker
    ) -> bytes:
        """See `Writer`."""
        cut, ends = self._cut(records)
        counts = {r.topic: [ends[r.topic], len(r.keys)] for r in records if len(r.keys)}
        value = make_marker(counts)
        last, _ = self._cut([Records(marker[0], [marker[1]], [value])])
        self._log.append(self._id, self._epoch, self._partition, [*cut, *last])
        return value

    def write_part(self, records: Records) -> int:
        """See `Writer`."""
        cut, ends = self._cut([records])
        self._log.append(self._id, self._epoch, self._partition, cut)
        return ends[records.topic]

    def close(self) -> None:
        """See `Writer`."""

    def _cut(self, groups: Sequence[Records]) -> tuple[list[Message], dict[str, int]]:
        self._log.check(self._id, self._epoch)
        ends = self._log.next_offsets(self._partition, {g.topic for g in groups})
        made: list[Message] = []
        for group in groups:
            now = now_ms()
            stamps = [now] * len(group.keys)
            if group.timestamps is not None:
                stamps = [*record_times(group.timestamps)]
            heads: Sequence[Headers | None] = group.headers or [None] * len(group.keys)
            rows = zip(group.keys, group.values, stamps, heads, strict=True)
            for key, value, stamp, headers in rows:
                size = len(key or b"") + len(value or b"")
                if size > self._log.limit:
                    raise TooLarge(
                        f"a record of {size} bytes was refused: topic {group.topic!r} takes "
                        f"{self._log.limit}",
                        topic=group.topic,
                        size=size,
                        limit=self._log.limit,
                    )
                made.append(
                    Message(
                        topic=group.topic,
                        partition=self._partition,
                        offset=ends[group.topic],
                        key=key,
                        value=value,
                        headers=None if headers is None else [*headers],
                        timestamp=(TIMESTAMP_CREATE_TIME, stamp),
                    )
                )
                ends[group.topic] += 1
        return made, ends


def _id(topic: str) -> str:
    return f"memory:{topic}"
