"""Follows Kafka partitions across looks: every committed record once, in the order of its log."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping

from confluent_kafka import Consumer, KafkaError, Message, TopicPartition

from state_lib.kafka import NO_ANSWER, NO_GROUP, Kafka, Partition, unavailable


class Tail:
    """A consumer that stays open between looks. For one thread at a time."""

    def __init__(self, kafka: Kafka) -> None:
        self._kafka = kafka
        self._consumer: Consumer = kafka.reader(
            **{"queued.min.messages": 100, "queued.max.messages.kbytes": 1024}
        )
        self._next: dict[Partition, int] = {}

    def follow(self, starts: Mapping[Partition, int]) -> None:
        """Follow these as well, each from an offset on."""
        new = {p: start for p, start in starts.items() if p not in self._next}
        if new:
            self._next |= new
            self._consumer.assign([TopicPartition(t, p, o) for (t, p), o in self._next.items()])

    def __contains__(self, partition: Partition) -> bool:
        return partition in self._next

    def after(self, partition: Partition) -> int:
        """The offset that comes next; 0 of one that is not followed."""
        return self._next.get(partition, 0)

    def read(self, ends: Mapping[Partition, int], timeout_s: float) -> Iterable[Message]:
        """Yield what was committed up to ``ends``.

        Raises:
            Unavailable: it took longer than ``timeout_s``, or an offset is no longer in the log.
        """
        deadline = time.monotonic() + timeout_s
        while any(self._next[p] < end for p, end in ends.items() if p in self._next):
            if time.monotonic() > deadline:
                raise unavailable("send what was committed", NO_ANSWER, self._kafka)
            for message in self._consumer.consume(1000, 0.1):
                where = (message.topic() or "", message.partition() or 0)
                error, offset = message.error(), message.offset() or 0
                if error is None:
                    self._next[where] = offset + 1
                    yield message
                elif error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001 - the public code
                    self._next[where] = max(self._next[where], offset)
                elif not error.retriable() and error.code() != NO_GROUP:
                    raise unavailable(f"read {where[0]}/{where[1]}", error, self._kafka)

    def close(self) -> None:
        """Free the consumer."""
        self._consumer.close()
