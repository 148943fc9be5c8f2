"""Restores as ``<app>-progress`` keeps them: records of kind ``restore``, which readers skip."""

from __future__ import annotations

import threading
import time
from typing import Any

import orjson
from confluent_kafka import KafkaException, Producer

from state_lib.changelog.topics import progress_topic
from state_lib.kafka import Kafka
from state_lib.protocol.marker import now_ms

_EVERY_S = 2.0


class RestoreRecords:
    """A `RestoreListener` that writes: start, at times progress, end, error.

    It is for people and monitors: a record that Kafka does not take is no failure of a restore.
    """

    def __init__(self, kafka: Kafka, host: str) -> None:
        self._kafka, self._host = kafka, host
        self._lock = threading.Lock()
        self._producer: Producer | None = None
        self._written: dict[tuple[str, str], float] = {}

    def on_restore_start(self, task: str, store: str, start: int, end: int) -> None:
        """See `RestoreListener`."""
        self._write("start", task, store=store, start=start, end=end)

    def on_batch_restored(self, task: str, store: str, records: int, offset: int) -> None:
        """See `RestoreListener`."""
        del records
        if self._is_due(task, store):
            self._write("progress", task, store=store, offset=offset)

    def on_restore_end(self, task: str, store: str, records: int) -> None:
        """See `RestoreListener`."""
        self._write("end", task, store=store, records=records)

    def on_snapshot_fetched(self, task: str, done: int, total: int) -> None:
        """See `RestoreListener`."""
        if done == total or self._is_due(task, "fetch"):
            self._write("fetch", task, done=done, total=total)

    def on_restore_error(self, task: str, why: str) -> None:
        """See `RestoreListener`."""
        self._write("error", task, why=why)

    def _is_due(self, task: str, what: str) -> bool:
        with self._lock:
            return time.monotonic() - self._written.get((task, what), 0.0) >= _EVERY_S

    def _write(self, phase: str, task: str, **more: Any) -> None:
        record = {"kind": "restore", "phase": phase, "task": task, "host": self._host}
        topic = progress_topic(task.rpartition("/")[0])
        with self._lock:
            self._written[task, str(more.get("store", phase))] = time.monotonic()
            try:
                self._producer = self._producer or self._kafka.producer(None, **{"linger.ms": 50})
                value = orjson.dumps({**record, **more, "at": now_ms()})
                self._producer.produce(topic, value, partition=0)
                self._producer.poll(0)
            except (BufferError, KafkaException):
                return
