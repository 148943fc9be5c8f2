"""How large a log is, from a few looks into it: brokers tell offsets, not records or bytes."""

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
    """Of the records seen.

    Attributes:
        record_bytes: mean bytes of key and value.
        density: records per offset: compaction and control records leave holes.
    """

    record_bytes: float = 100.0
    density: float = 1.0


def sample(
    kafka: Kafka, topic: str, partition: int, start: int, end: int, places: int = _PLACES
) -> Sample:
    """Read a few records at a few places of ``[start, end)``; the default where none are found.

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
    """The next few. A read that cannot be filled waits its whole time: so one record, then all."""
    messages = consumer.consume(1, _FIRST_S)
    messages += consumer.consume(_RECORDS - 1, _REST_S) if messages else []
    return [m for m in messages if m.error() is None and (m.offset() or 0) < end]
