"""Directories that stand for a task's checkpoint, and storage to put them into."""

from __future__ import annotations

import shutil
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from state_lib.changelog.topics import changelog_topic
from state_lib.client.flight import FlightHostClient
from state_lib.protocol.marker import Marker
from state_lib.snapshots.write import SnapshotRequest
from state_lib.specs import StoreSpec, Topology
from state_lib.stores.rocksdb.options import RocksDBOptions
from state_lib.stores.task_stores import Checkpoint, TaskStores
from tests.support.apps import KV, NOON, at
from tests.support.waiting import until

SMALL = RocksDBOptions(write_buffer_bytes=1 << 20)


def ended(client: FlightHostClient, app: str, partition: int = 0) -> dict[str, Any]:
    """The job of a task's snapshot, once it does not run any more."""
    found: list[dict[str, Any]] = []

    def done() -> bool:
        found[:] = [client.snapshot_status(app, partition)]
        return bool(found[0]["state"] != "running")

    until(done, 90)
    return found[0]


class Source:
    """Stores that are written and checkpointed, with no Kafka behind them."""

    def __init__(self, root: Path, app: str = "app", stores: tuple[StoreSpec, ...] = (KV,)) -> None:
        self.topology = Topology(app, 2, stores)
        self.stores = TaskStores(self.topology, root / "live", SMALL)
        self.root, self.n = root, 0
        self.made = 0
        """How often its topics were made again."""

    def write(
        self, entries: Mapping[bytes, bytes | None], store: str = "kv", state: str = "running"
    ) -> Marker:
        """Commit ``n``."""
        self.n += 1
        now = time.time_ns() // 1_000_000
        marker = Marker(
            epoch=3,
            batch_number=self.n,
            positions=at(self.n),
            stream_time_ms=NOON,
            written_at=now,
            state=state,
        )
        again = "-again" * self.made
        offsets = {
            changelog_topic(self.topology.app, s.name): [f"id-of-{s.name}{again}", self.n * 10]
            for s in self.topology.stores
        }
        changes = {store: (list(entries), list(entries.values()))}
        self.stores.write(changes, Checkpoint(marker, offsets, self.stores.layouts))
        return marker

    def request(self, url: str, partition: int = 0) -> SnapshotRequest:
        """A checkpoint of now, to be uploaded."""
        directory = self.root / "checkpoint"
        shutil.rmtree(directory, ignore_errors=True)
        self.stores.rocks.checkpoint(directory)
        if self.stores.memory.families():
            self.stores.memory.checkpoint(directory / "memory")
        return SnapshotRequest(url, self.topology, partition, directory, host="host-1")


def entries_of(directory: Path, topology: Topology, store: str = "kv") -> dict[bytes, bytes]:
    """What a fetched directory holds."""
    stores = TaskStores(topology, directory, SMALL, read_only=True)
    try:
        with stores.stores[store].scan() as found:
            return dict(found)
    finally:
        stores.close()
