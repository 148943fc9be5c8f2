"""A task in this process, and the same through a host: what a commit and an exchange cost."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from benchmarks.committer import Committer, batches
from benchmarks.contenders.engine import Query
from benchmarks.contenders.holdfast import Holdfast
from benchmarks.layers.timing import Timing, timed
from benchmarks.world import TASKS, World
from state_lib.changelog.log import KafkaLog
from state_lib.changelog.topics import changelog_topic
from state_lib.changelog.writer import Records, TransactionalWriter
from state_lib.protocol.marker import CommitHeader, now_ms
from state_lib.protocol.positions import Positions
from state_lib.task import Batch, Puts, StateTask, TaskContext

VALUE = (1).to_bytes(8, "big")


def run(rows: int, world: World) -> Iterator[Timing]:
    """Time exchanges with a host, then the same task opened in this process.

    Exchanges come first: opening the task here takes it from the host.
    """
    query = Query(world.name("bench-layers"), world.name("empty"))
    holdfast = Holdfast(world, query)
    committer = Committer(world, holdfast, query)
    committer.create()
    keys = next(batches(np.arange(rows * TASKS), rows * TASKS))[0]
    holdfast.start_hosts()
    try:
        committer.claim()
        yield from _exchange(committer, keys)
    finally:
        committer.close()
        holdfast.stop()
    yield from _in_process(world, committer, keys)


def _exchange(committer: Committer, keys: pa.BinaryArray) -> Iterator[Timing]:
    none = keys[:0]

    def next_commit(some: pa.BinaryArray) -> None:
        committer.n += 1
        committer.commit(0, some)

    yield timed("exchange", "commit of nothing", 0, lambda _: next_commit(none))
    yield timed("exchange", "get, put, commit", len(keys), lambda _: next_commit(keys))

    def get(_: int) -> None:
        app, at = committer.query.app, committer.n + 1
        with committer.clients[0].exchange(app, 0, committer.epoch, at) as exchange:
            exchange.get(Query.STORE, keys)

    yield timed("exchange", "get", len(keys), get)


def _in_process(world: World, committer: Committer, keys: pa.BinaryArray) -> Iterator[Timing]:
    listed = keys.to_pylist()
    puts = Puts(listed, [VALUE] * len(listed), [now_ms()] * len(listed))
    state = world.folder / world.name("task")
    state.mkdir()
    task = StateTask(TaskContext(KafkaLog(world.kafka), "layers", state), committer.topology, 0)
    task.open()
    marker = task.claim(committer.topology, committer.epoch + 1)

    def commit(changes: dict[str, Puts]) -> None:
        n = task.marker.batch_number + 1
        header = CommitHeader(
            epoch=marker.epoch, batch_number=n, from_=Positions(), to=Positions(), stream_time_ms=0
        )
        task.commit(Batch(header, changes))

    yield timed("commit", "of nothing", 0, lambda _: commit({}))
    yield timed("commit", "of changes", len(listed), lambda _: commit({Query.STORE: puts}))
    yield timed(
        "commit", "get before it", len(listed), lambda _: task.get_many(Query.STORE, listed)
    )
    task.close()

    writer = TransactionalWriter(world.kafka, f"{committer.query.app}-0", 0)
    writer.open()
    topic = changelog_topic(committer.query.app, Query.STORE)
    records = [Records(topic, puts.keys, puts.values, puts.timestamps)]

    def produce(_: int) -> None:
        writer.write(records, (topic, b"marker"), lambda _: b"")

    yield timed("commit", "its Kafka transaction", len(listed), produce)
    writer.close()
