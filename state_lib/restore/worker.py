"""``python -m state_lib.restore.worker``: writes sorted runs for a host, on a core of its own.

Standard input: a line with librdkafka's properties, then one job a line (`RunJob`). Standard
output: one JSON object a line: ``{"batch": [records, offset]}``, ``{"run": {family: file}}``, and
at the end of a job ``{"done": true}`` or ``{"error": …}``. It ends with its standard input, so that
no worker outlives its host and writes into a directory that a new host builds.

It must start fast: a test holds that neither numpy nor pyarrow nor pydantic is imported.
"""

from __future__ import annotations

import gc
import os
import queue
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

import orjson
from confluent_kafka import Consumer, Message, TopicPartition

from state_lib.changelog.reader import drain
from state_lib.errors import HoldfastError
from state_lib.heap import keep_heap
from state_lib.kafka import Kafka
from state_lib.restore.runs import Batch, Run, RunJob, write_runs

_TELL_S = 0.1
_QUICK = {
    "fetch.wait.max.ms": 10,
    "enable.auto.offset.store": False,  # no offsets are committed
    "queued.min.messages": 20_000,  # a shorter queue stays in the processor's caches
}
Line = dict[str, Any]


def main() -> int:
    """Work until standard input ends."""
    # No reference cycles are made here, and searching for them costs as much as reading [tried].
    gc.disable()
    keep_heap()
    lines: queue.SimpleQueue[bytes] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=[lines], daemon=True).start()
    kafka = Kafka(orjson.loads(lines.get()))
    consumer = kafka.reader(**_QUICK)
    while True:
        job = RunJob.from_json(orjson.loads(lines.get()))
        try:
            for line in _told(job, kafka, consumer):
                _say(line)
            _say({"done": True})
        except HoldfastError as error:
            _say({"error": error.to_wire()})
        finally:
            consumer.unassign()


def _told(job: RunJob, kafka: Kafka, consumer: Consumer) -> Iterator[Line]:
    """Lines of a job; batches are put together, so that the host is not kept busy by them."""
    records, offset, told = 0, job.start, time.monotonic()
    for event in write_runs(job, _batches(job, kafka, consumer)):
        match event:
            case Batch():
                records, offset = records + event.records, event.offset
                if time.monotonic() - told > _TELL_S:
                    yield {"batch": [records, offset]}
                    records, told = 0, time.monotonic()
            case Run():
                yield {"run": dict(event.files)}
    yield {"batch": [records, offset]}


def _batches(job: RunJob, kafka: Kafka, consumer: Consumer) -> Iterator[list[Message]]:
    if job.start < job.end:
        consumer.assign([TopicPartition(job.topic, job.partition, job.start)])
        yield from drain(kafka, consumer, job.start, job.end, job.batch)


def _listen(lines: queue.SimpleQueue[bytes]) -> None:
    for line in sys.stdin.buffer:
        lines.put(line)
    os._exit(0)  # at once, whatever is running: its host is gone, or has closed it


def _say(line: Line) -> None:
    sys.stdout.buffer.write(orjson.dumps(line) + b"\n")
    sys.stdout.buffer.flush()


if __name__ == "__main__":
    sys.exit(main())
