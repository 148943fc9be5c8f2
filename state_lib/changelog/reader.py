"""Reads committed records of one partition up to its last stable offset.

Offsets are not dense: control records of transactions, aborted records and compaction leave holes,
so nothing here waits for "the record at end - 1". A read ends when the consumer reports the end of
the partition.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

from confluent_kafka import Consumer, KafkaError, Message, TopicPartition

from state_lib.errors import StateCorrupt, Unavailable
from state_lib.kafka import NO_GROUP, Kafka, ends, starts, unavailable

BATCH = 10_000
_WAIT_S = 0.02  # the last read finds less than it asks for, and waits its whole time
STALL_S = 60.0
"""Seconds without any answer from the broker after which a read gives up."""


def read(
    kafka: Kafka, topic: str, partition: int, start: int, end: int, batch: int = BATCH
) -> Iterator[list[Message]]:
    """Yield batches of committed records with ``start <= offset < end``.

    Args:
        kafka: connection.
        topic: what to read.
        partition: of the topic.
        start: first offset, inclusive.
        end: last stable offset as `state_lib.kafka.ends` gives it, exclusive.
        batch: greatest number of records per list.

    Raises:
        StateCorrupt: ``start`` is below the log's start or above its end.
        Unavailable: the broker answered nothing for `STALL_S` seconds.
    """
    if start >= end:
        return
    consumer = kafka.reader()
    try:
        consumer.assign([TopicPartition(topic, partition, start)])
        yield from drain(kafka, consumer, start, end, batch, STALL_S)
    finally:
        consumer.close()


def drain(
    kafka: Kafka,
    consumer: Consumer,
    start: int,
    end: int,
    batch: int,
    stall_s: float = STALL_S,
) -> Iterator[list[Message]]:
    """As `read`, with a consumer of ``kafka`` that was assigned one partition at ``start``."""
    position, heard = start, time.monotonic()
    while position < end:
        want = max(1, min(batch, end - position))
        messages = consumer.consume(want, _WAIT_S)
        # One call per message only: a restore reads millions of them.
        errors = list(map(Message.error, messages))
        records = (
            [m for m, error in zip(messages, errors, strict=True) if error is None]
            if any(errors)
            else messages
        )
        if records:
            position = (records[-1].offset() or 0) + 1
            if position > end:
                records = [m for m in records if (m.offset() or 0) < end]
                position = end
        for message in messages if len(records) < len(messages) else ():
            error = message.error()
            if error is None:
                continue
            if error.code() != KafkaError._PARTITION_EOF:  # noqa: SLF001 - the public code
                _raise(kafka, error, message, start, end)  # returns if a broker is away
                continue
            heard = time.monotonic()
            # An end below `end` is that of a new leader which does not know its high watermark yet
            # (KIP-207): stopping there would lose committed records.
            if (message.offset() or 0) >= end:
                position = end
        if records:
            yield records
            heard = time.monotonic()  # the caller's own work is not the broker's silence
        elif time.monotonic() - heard > stall_s:
            raise Unavailable(
                f"no record arrived for {stall_s:.0f} s while reading up to offset {end} (now at "
                f"{position}): look at the broker's log",
                position=position,
                end=end,
            )


def _raise(kafka: Kafka, error: KafkaError, message: Message, start: int, end: int) -> None:
    if error.code() in (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE):  # noqa: SLF001
        raise StateCorrupt(
            f"offset {start} of {message.topic()}/{message.partition()} is not in the log any "
            "more: this state is set aside and rebuilt",
            start=start,
            end=end,
        )
    if error.retriable() or error.code() in (
        KafkaError._ALL_BROKERS_DOWN,  # noqa: SLF001
        KafkaError._TRANSPORT,  # noqa: SLF001
        NO_GROUP,
    ):
        return
    raise unavailable(f"read {message.topic()}/{message.partition()}", error, kafka)


def read_last(
    kafka: Kafka, topic: str, partition: int, *, key: bytes | None = None
) -> Message | None:
    """The last committed record of a partition, or the last one with a key; None if there is none.

    Reads a short tail first, then longer ones: aborted transactions may have left any number of
    holes before the end.
    """
    admin = kafka.admin()
    at = (topic, partition)
    end, first = ends(admin, [at])[at], starts(admin, [at])[at]
    tail = 64
    while True:
        start = max(first, end - tail)
        last = None
        for records in read(kafka, topic, partition, start, end):
            last = next((r for r in reversed(records) if key in (None, r.key())), last)
        if last is not None or start == first:
            return last
        tail *= 8
