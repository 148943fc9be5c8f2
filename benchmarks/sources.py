"""Source topics: the same records for every contender and every round."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from state_lib.changelog.admin import ensure_topics
from state_lib.changelog.topics import TopicPlan
from state_lib.kafka import Kafka
from state_lib.protocol.marker import now_ms

KEYS = 1_000_000
SKEW = 1.2
CHUNK = 200_000
SPREAD_MS = 600_000
"""Event time from the first record to the last, which is now."""
_CONFIG = {"cleanup.policy": "delete", "retention.ms": "-1"}


def ids(kind: str, records: int) -> npt.NDArray[np.int64]:
    """Keys as numbers: ``zipf`` over a million keys, or ``distinct`` in random order."""
    rng = np.random.default_rng(1)
    if kind == "distinct":
        return rng.permutation(records).astype(np.int64)
    return rng.zipf(SKEW, records) % KEYS


def key(number: int) -> bytes:
    """A key of twelve bytes."""
    return b"key-%08d" % number


def create(
    kafka: Kafka, topic: str, partitions: int, config: Mapping[str, str] | None = None
) -> None:
    """Make an empty topic, by default one that keeps all of a source."""
    ensure_topics(kafka.admin(), [TopicPlan(topic, partitions, config or _CONFIG)], 1, 1)


def load(kafka: Kafka, topic: str, kind: str, records: int) -> None:
    """Write ``records`` of a kind, event time rising evenly, partitioned by key.

    Kafka Streams counts per partition: only if equal keys share one are its counts Holdfast's.
    """
    producer = kafka.producer(
        topic,
        **{
            "linger.ms": 50,
            "queue.buffering.max.messages": 2 * CHUNK,
            "compression.type": "lz4",
            "partitioner": "murmur2_random",
        },
    )
    numbers = ids(kind, records)
    stamps = now_ms() - SPREAD_MS + np.arange(records) * SPREAD_MS // records
    for at in range(0, records, CHUNK):
        chunk = zip(
            numbers[at : at + CHUNK].tolist(), stamps[at : at + CHUNK].tolist(), strict=True
        )
        for number, stamp in chunk:
            producer.produce(topic, b"v", key(number), timestamp=stamp)
        if left := producer.flush(120):
            raise RuntimeError(f"the broker did not take {left} records of {topic}")
