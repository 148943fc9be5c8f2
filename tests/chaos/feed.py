"""Events for chaos tests, the same for the same seed."""

from __future__ import annotations

import json
import random

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

START_MS = 1_700_000_000_000
PARTITIONS = 3


def create(bootstrap: str, topic: str) -> None:
    """A source topic that keeps everything."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    new = NewTopic(topic, PARTITIONS, 1, config={"retention.ms": "-1"})
    admin.create_topics([new])[topic].result()


def feed(bootstrap: str, topic: str, first: int, count: int) -> None:
    """Write events ``first`` to ``first + count - 1``; event time advances a second per event.

    One in ten is up to four hours late, one in fifty has a null key, one in a hundred is not JSON,
    and one in two hundred lacks its required column.
    """
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 20})
    for i in range(first, first + count):
        rng = random.Random(i)  # noqa: S311 - test data
        stamp = START_MS + i * 1000
        if rng.random() < 0.1:
            stamp -= rng.randrange(4 * 3_600_000)
        key = None if rng.random() < 0.02 else f"k{rng.randrange(60)}"
        value = json.dumps({"k": key, "x": rng.randrange(1000)})
        if rng.random() < 0.01:
            value = f"not json {i}"
        elif rng.random() < 0.005:
            value = json.dumps({"k": key})
        producer.produce(topic, value, key=str(i), partition=i % PARTITIONS, timestamp=stamp)
        if i % 1000 == 0:
            producer.poll(0)
    producer.flush()
