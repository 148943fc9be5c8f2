"""A source that goes on growing at a steady rate."""

from __future__ import annotations

import threading
import time
from typing import Self

from benchmarks import sources
from state_lib.kafka import Kafka
from state_lib.protocol.marker import now_ms

EVERY_S = 0.1


class Feed:
    """A topic with ``keys`` distinct keys; inside ``with``, a thread adds ``rate`` records/s.

    Attributes:
        sent: records in the topic, once the ``with`` is left.
    """

    def __init__(self, kafka: Kafka, topic: str, partitions: int, keys: int, rate: int) -> None:
        self._topic, self._keys, self._rate = topic, keys, rate
        sources.create(kafka, topic, partitions)
        sources.load(kafka, topic, "distinct", keys)
        self._producer = kafka.producer(
            topic, **{"linger.ms": 5, "compression.type": "lz4", "partitioner": "murmur2_random"}
        )
        self.sent = keys
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        """Start adding."""
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """End, with all of it delivered."""
        self._stop.set()
        self._thread.join()
        if left := self._producer.flush(120):
            raise RuntimeError(f"the broker did not take {left} records of {self._topic}")

    def _run(self) -> None:
        started, first = time.monotonic(), self.sent
        while not self._stop.wait(EVERY_S):
            due = first + int((time.monotonic() - started) * self._rate)
            for number in range(self.sent, due):
                self._producer.produce(
                    self._topic, b"v", sources.key(number % self._keys), timestamp=now_ms()
                )
            self._producer.poll(0)
            self.sent = due
