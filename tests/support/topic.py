"""One log to write to and read from, as `Log`; the fixture is `log` of tests/integration."""

from __future__ import annotations

import time
from ast import literal_eval

from confluent_kafka import Message

from state_lib.changelog.limits import size_limits
from state_lib.changelog.reader import read
from state_lib.changelog.writer import Records, TransactionalWriter
from state_lib.kafka import Kafka, ends, starts
from tests.support.waiting import deadline_in

MARKS = "-marks"


class Log:
    """One topic with one partition, its markers' topic, and writers to it."""

    def __init__(self, kafka: Kafka, topic: str) -> None:
        self.kafka, self.topic = kafka, topic
        self.writers: list[TransactionalWriter] = []

    def writer(self, timeout_s: float = 30.0) -> TransactionalWriter:
        topics = [self.topic, self.topic + MARKS]
        limits = size_limits(self.kafka.admin(), topics)
        made = TransactionalWriter(self.kafka, self.topic, 0, timeout_s, self.topic, limits)
        made.open()
        self.writers.append(made)
        return made

    def put(self, writer: TransactionalWriter, *keys: str, time_ms: int = 1000) -> bytes:
        raw: list[bytes | None] = [k.encode() for k in keys]
        return self.write(writer, Records(self.topic, raw, raw, [time_ms] * len(raw)))

    def write(self, writer: TransactionalWriter, records: Records) -> bytes:
        value = writer.write([records], (self.topic + MARKS, b"t"), lambda cut: repr(cut).encode())
        end: int = literal_eval(value.decode())[self.topic][0]
        deadline = deadline_in(10)  # acknowledged before the brokers have marked it so
        while self.bounds[1] <= end:
            assert time.monotonic() < deadline
        return value

    def abort(self, writer: TransactionalWriter, keys: int = 1) -> None:
        """A transaction whose records reach the log and are aborted."""
        producer = writer._producer
        producer.begin_transaction()
        for i in range(keys):
            producer.produce(self.topic, b"aborted", b"%d" % i, 0)
        producer.flush()
        producer.abort_transaction()

    @property
    def bounds(self) -> tuple[int, int]:
        admin, at = self.kafka.admin(), (self.topic, 0)
        return starts(admin, [at])[at], ends(admin, [at])[at]

    def read(self, start: int | None = None) -> list[Message]:
        first, end = self.bounds
        batches = read(self.kafka, self.topic, 0, first if start is None else start, end)
        return [message for batch in batches for message in batch]

    def read_keys(self, start: int | None = None) -> list[str]:
        return [(m.key() or b"").decode() for m in self.read(start)]

    def wait_for(self, first: int, last: int = 1 << 62) -> None:
        """Until the log starts at ``first`` or holds at most ``last`` records."""
        deadline = deadline_in(60)
        while self.bounds[0] < first or len(self.read()) > last:
            assert time.monotonic() < deadline, (self.bounds, self.read_keys())
            time.sleep(0.2)
