"""Commits to running hosts as executors do, through the same exchange, with no Spark around it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from benchmarks import sources
from benchmarks.contenders.engine import Query
from benchmarks.contenders.holdfast import Holdfast
from benchmarks.partitions import partitions_for
from benchmarks.world import TASKS, World
from state_lib.changelog.admin import ensure_topics
from state_lib.changelog.topics import plan_topics, topology_topic
from state_lib.client.flight import FlightHostClient
from state_lib.driver.claims import write_claim
from state_lib.errors import Unavailable
from state_lib.kafka import require
from state_lib.protocol.marker import CommitHeader, now_ms
from state_lib.protocol.placement import owner_of
from state_lib.protocol.positions import Positions
from state_lib.specs import StoreSpec, Topology

CHUNK = 400_000
"""Keys of one batch, over all tasks."""
READY_S = 900.0
Ids = npt.NDArray[np.int64]


@dataclass
class Committer:
    """A driver without Spark: claims all tasks, then commits batch after batch.

    Attributes:
        world, holdfast: what runs.
        query: names the application; its source stays empty.
    """

    world: World
    holdfast: Holdfast
    query: Query

    def __post_init__(self) -> None:
        store = StoreSpec(
            Query.STORE, "timestamped-key-value", key_serde="bytes", value_serde="int64"
        )
        self.topology = Topology(self.query.app, TASKS, (store,), sources=(self.query.topic,))
        self.epoch = self.n = 0
        self._topic_id = ""
        settings = self.holdfast.settings
        owners = [owner_of(self.query.app, t, settings.host_addresses) for t in range(TASKS)]
        self.clients = [FlightHostClient(owner, settings.read_token()) for owner in owners]

    def create(self) -> None:
        """Make the application's topics and its empty source."""
        sources.create(self.world.kafka, self.query.topic, TASKS)
        ensure_topics(self.world.kafka.admin(), plan_topics(self.topology), 1, 1)

    def claim(self) -> None:
        """Take every task as a new driver; returns when all are open, whatever that takes."""
        self.epoch, self.n = write_claim(self.world.kafka, self.topology), 0
        topic = topology_topic(self.query.app)
        self._topic_id = require(self.world.kafka.admin(), [topic])[topic].id
        with ThreadPoolExecutor(TASKS) as pool:
            list(pool.map(self._claim, range(TASKS)))

    def commit(self, task: int, keys: pa.BinaryArray, count: int = 1, n: int | None = None) -> None:
        """Commit ``count`` for sorted keys of one task.

        Args:
            task: whose keys they are.
            keys: sorted, distinct.
            count: their new value.
            n: number of the commit; ``self.n`` by default.
        """
        n = self.n if n is None else n
        values = pa.array([count.to_bytes(8, "big")] * len(keys), pa.binary())
        stamps = pa.array(np.full(len(keys), now_ms()))
        app, store = self.query.app, Query.STORE
        with self.clients[task].exchange(app, task, self.epoch, n) as exchange:
            exchange.get(store, keys)
            exchange.put(store, keys, values, stamps)
            exchange.commit(
                CommitHeader(
                    epoch=self.epoch,
                    batch_number=n,
                    from_=Positions(),
                    to=Positions(),
                    stream_time_ms=0,
                )
            )

    def write(self, ids: Ids, count: int = 1, chunk: int = CHUNK) -> None:
        """Commit keys in batches, every task in every batch."""
        with ThreadPoolExecutor(TASKS) as pool:
            for batch in batches(ids, chunk):
                self.n += 1
                list(pool.map(self.commit, range(TASKS), batch, [count] * TASKS))

    def close(self) -> None:
        """Drop the connections."""
        for client in self.clients:
            client.close()

    def _claim(self, task: int) -> None:
        deadline = time.monotonic() + READY_S
        while True:
            try:
                self.clients[task].claim(self.query.app, task, self.epoch, self._topic_id)
            except Unavailable:
                self.holdfast.check()
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.1)  # each look costs the host and this process a millisecond
            else:
                return


def batches(ids: Ids, chunk: int) -> Iterator[list[pa.BinaryArray]]:
    """Chunks of keys, each split by task and sorted."""
    for at in range(0, len(ids), chunk):
        keys = pa.array([sources.key(i) for i in ids[at : at + chunk].tolist()], pa.binary())
        tasks = partitions_for(keys, TASKS)
        split = [keys.filter(pa.array(tasks == task)) for task in range(TASKS)]
        yield [part.take(pc.array_sort_indices(part)) for part in split]
