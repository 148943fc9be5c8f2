"""The log of recorded batches: what a driver that aligns after a crash reads of it at most."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import orjson
from confluent_kafka.admin import NewTopic

from benchmarks.layers.timing import Timing, peak_bytes, timed
from benchmarks.world import TASKS, World
from state_lib.changelog.progress import ProgressLog, effective
from state_lib.changelog.topics import progress_topic
from state_lib.executor.plan import BatchPlan
from state_lib.protocol.marker import now_ms
from state_lib.protocol.positions import Positions


def run(records: int, world: World) -> Iterator[Timing]:
    """Time an append, and the reading of so many records: a batch a second for a day is 86,400.

    Reading begins where the task furthest behind stands, and what stands from there on is kept: the
    records that it missed bound the memory. That is measured in a run of its own.
    """
    app = world.name("bench-progress")
    topic = progress_topic(app)
    made = world.kafka.admin().create_topics([NewTopic(topic, 1, 1)])
    made[topic].result()
    producer = world.kafka.producer(topic)
    for n in range(records):
        producer.produce(topic, orjson.dumps(_plan(n).record()))
        if n % 10_000 == 0:
            producer.flush()
    producer.flush()
    log = ProgressLog(world.kafka, app)

    def read(_: int) -> None:
        found = len(effective(log.read()))
        if found < records:
            raise RuntimeError(f"{found} of {records} batches of {topic} stand")

    timing = timed("progress", "read, and what stands of it", records, read)
    yield replace(timing, peak_bytes=peak_bytes(lambda: read(0)))
    yield timed(
        "progress", "append", 1, lambda repeat: log.append(_plan(records + repeat).record())
    )


def _plan(n: int) -> BatchPlan:
    at, to = (Positions({("source", p): 1000 * (n + i) for p in range(TASKS)}) for i in (0, 1))
    return BatchPlan(1, n, at, to, n, now_ms(), 3_600_000, {"source": "id"}, limits={"count": 9})
