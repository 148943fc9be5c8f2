"""An estimate of a log's size from a few records: brokers report offsets, not records or bytes."""

from __future__ import annotations

from dataclasses import dataclass

from confluent_kafka import Consumer, KafkaException, Message, TopicPartition

from state_lib.kafka import Kafka, unavailable

_PLACES = 4
_RECORDS = 250
_FIRST_S, _REST_S = 2.0, 0.1
_LITTLE = {
    "auto.offset.reset": "earliest",
    "queued.min.messages": _RECORDS,
    "fetch.message.max.bytes": 64 << 10,  # more would be unpacked for nothing; see `Kafka.reader`
}


@dataclass(frozen=True)
class Sample:
    """Averages over the records read.

    Attributes:
        record_bytes: mean bytes of key and value.
        density: records per offset; below 1 because of compaction and control records.
    """

    record_bytes: float = 100.0
    density: float = 1.0


def sample(
    kafka: Kafka, topic: str, partition: int, start: int, end: int, places: int = _PLACES
) -> Sample:
    """Read some records at some places of ``[start, end)``; the default if there are none.

    Raises:
        Unavailable: Kafka is away.
    """
    consumer = kafka.reader(**_LITTLE)
    size = records = offsets = 0
    try:
        for place in range(places):
            at = start + (end - start) * place // places
            consumer.assign([TopicPartition(topic, partition, at)])
            found = _records(consumer, end)
            if found:
                size += sum(len(m.key() or b"") + len(m.value() or b"") for m in found)
                records += len(found)
                offsets += (found[-1].offset() or 0) + 1 - at
    except KafkaException as error:
        raise unavailable(f"read {topic}/{partition}", error, kafka) from error
    finally:
        consumer.close()
    if not records:
        return Sample()
    return Sample(size / records, min(1.0, records / max(1, offsets)))


def _records(consumer: Consumer, end: int) -> list[Message]:
    """The next records: one first, as a read of more than there are waits its whole time."""
    messages = consumer.consume(1, _FIRST_S)
    messages += consumer.consume(_RECORDS - 1, _REST_S) if messages else []
    return [m for m in messages if m.error() is None and (m.offset() or 0) < end]
