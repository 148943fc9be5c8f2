"""The last records of many partitions, by one consumer: one for each would take seconds."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

from confluent_kafka import Consumer, KafkaError, Message, TopicPartition

from state_lib.changelog.reader import BATCH, STALL_S, read_last
from state_lib.errors import Unavailable
from state_lib.kafka import NO_GROUP, Kafka, ends, starts, unavailable

_TAIL = 16
_WAIT_S = 0.05


def last_records(kafka: Kafka, topic: str, partitions: Sequence[int]) -> list[Message | None]:
    """The last committed record of each partition, in their order; None for an empty partition.

    Reads a short tail of each. A partition whose tail holds no record, because of aborted
    transactions, is read as by `read_last`.

    Raises:
        Unavailable: the brokers do not answer.
    """
    admin = kafka.admin()
    every = [(topic, p) for p in partitions]
    end, first = ends(admin, every), starts(admin, every)
    tails = {
        p: (max(first[topic, p], end[topic, p] - _TAIL), end[topic, p])
        for p in partitions
        if end[topic, p] > first[topic, p]
    }
    found: dict[int, Message | None] = {}
    if tails:
        consumer = kafka.reader(**{"queued.min.messages": 1000})
        try:
            consumer.assign([TopicPartition(topic, p, at) for p, (at, _) in tails.items()])
            found.update(_drain(kafka, consumer, tails))
        finally:
            consumer.close()
    for p, (start, _) in tails.items():
        if p not in found and start > first[topic, p]:
            found[p] = read_last(kafka, topic, p)
    return [found.get(p) for p in partitions]


def _drain(
    kafka: Kafka, consumer: Consumer, tails: Mapping[int, tuple[int, int]]
) -> dict[int, Message]:
    """The last record of each tail that has one; ends as `state_lib.changelog.reader.drain`."""
    found: dict[int, Message] = {}
    open_, heard = set(tails), time.monotonic()
    while open_:
        for message in consumer.consume(BATCH, _WAIT_S):
            error, p = message.error(), message.partition()
            heard = time.monotonic()
            if p is None or p not in tails:
                _check(kafka, error, message)
                continue
            offset, end = message.offset() or 0, tails[p][1]
            if error is None and offset < end:
                found[p] = message
            elif error is not None and error.code() != KafkaError._PARTITION_EOF:  # noqa: SLF001
                _check(kafka, error, message)
                continue
            if offset >= end - (error is None):
                open_.discard(p)
        if time.monotonic() - heard > STALL_S:
            raise Unavailable(
                f"no record arrived for {STALL_S:.0f} s while the ends of {len(open_)} partitions "
                "were read: look at the brokers",
                partitions=sorted(open_),
            )
    return found


def _check(kafka: Kafka, error: KafkaError | None, message: Message) -> None:
    """Raise an error of a consumer, unless it is transient."""
    codes = (KafkaError._ALL_BROKERS_DOWN, KafkaError._TRANSPORT, NO_GROUP)  # noqa: SLF001
    if error is None or error.retriable() or error.code() in codes:
        return
    raise unavailable(f"read {message.topic()}/{message.partition()}", error, kafka)
