"""Stores of every kind on two hosts, and what Spark reads of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from state_lib.client.flight import FlightHostClient
from state_lib.host.tasks import TaskManager
from state_lib.kafka import Kafka
from state_lib.keys import partition_for
from state_lib.protocol.addresses import HostAddress
from state_lib.protocol.placement import owner_of
from state_lib.serdes import Struct
from state_lib.snapshots.listing import list_snapshots
from state_lib.specs import StoreSpec, Topology
from tests.support.apps import HOUR, NOON, SOURCE, App, batch
from tests.support.hosts import address, claim, publish, served
from tests.support.waiting import until

PARTITIONS, TOKEN = 2, "only-for-tests"
DELAYS = Struct(_at="int64", n="int64", name="utf8")
PAIR = Struct(a="int64", b="utf8")
ROUTE = Struct(origin="utf8", day="date")
HELD = Struct(
    least="decimal(5,2)",
    at="timestamp",
    local="timestamp_ntz",
    tags={"array": "utf8"},
    by={"map": ["utf8", "int64"]},
    last={"struct": [["dest", "utf8"], ["ok", "bool"]]},
)
STORES = (
    StoreSpec("plain"),
    StoreSpec("counts", kind="timestamped-key-value", key_serde="utf8", value_serde="int64"),
    StoreSpec(
        "hours",
        kind="window",
        key_serde="utf8",
        value_serde=DELAYS.describe(),
        window_size_ms=HOUR,
        retention_ms=4 * HOUR,
    ),
    StoreSpec("small", backend="memory", key_serde="int64", value_serde="json"),
    StoreSpec("pairs", key_serde=PAIR.describe(), value_serde="float64"),
    StoreSpec("routes", key_serde=ROUTE.describe(), value_serde=HELD.describe()),
)
WINDOWED = {"hours"}


class World:
    """Two tasks on two hosts in this process, and what Spark reads of them."""

    def __init__(
        self,
        spark: SparkSession,
        kafka: Kafka,
        name: str,
        root: Path,
        token: str | None = None,
        stores: Sequence[StoreSpec] = STORES,
    ) -> None:
        self.spark, self.name, self.token = spark, name, token
        self.app = App(kafka, Topology(name, PARTITIONS, tuple(stores), sources=(SOURCE,)), root)
        self.app.create()
        self.addresses = [address("host-1"), address("host-2")]
        self.epoch = publish(self.app, self.addresses)
        self.running = {at.id: ExitStack() for at in self.addresses}
        self.managers: dict[str, TaskManager] = {}
        for at in self.addresses:
            host = served(self.app, at, token, hosts=self.addresses)
            self.managers[at.id] = self.running[at.id].enter_context(host)
        for partition in range(PARTITIONS):
            with self.client(partition) as client:
                claim(client, self.app, self.epoch, partition)

    def stop(self, host: str) -> None:
        self.running[host].close()

    def owner(self, partition: int) -> HostAddress:
        return owner_of(self.name, partition, self.addresses)

    def client(self, partition: int) -> closing[FlightHostClient]:
        return closing(FlightHostClient(self.owner(partition), self.token))

    @property
    def hosts(self) -> str:
        return ",".join(map(str, self.addresses))

    @property
    def url(self) -> str:
        return (self.app.root / "snapshots").as_uri()

    def put(self, store: str, entries: Mapping[bytes, bytes], time: int = NOON) -> None:
        """A commit of every task, with its own part of these entries, as the changelog has them."""
        for partition in range(PARTITIONS):
            mine = {k: v for k, v in entries.items() if partition_of(store, k) == partition}
            self.commit(partition, store, mine, time)

    def commit(
        self, partition: int, store: str, entries: Mapping[bytes, bytes], time: int = NOON
    ) -> int:
        with self.client(partition) as client:
            n = client.marker(self.name, partition).batch_number + 1
            with client.exchange(self.name, partition, self.epoch, n) as exchange:
                pairs = sorted(entries.items())
                keys, values = (pa.array([p[i] for p in pairs], pa.binary()) for i in range(2))
                exchange.put(store, keys, values, pa.array([time] * len(entries), pa.int64()))
                return exchange.commit(batch(exchange.marker, n=n).header).batch_number

    def read(self, store: str, **options: str) -> DataFrame:
        given = {"app": self.name, "store": store, "hosts": self.hosts, **options}
        return self.spark.read.format("holdfast").options(**given).load()

    def stored(self, store: str, snapshot: str) -> DataFrame:
        given = {"app": self.name, "store": store, "snapshots_url": self.url}
        return self.spark.read.format("holdfast").options(**given, snapshot=snapshot).load()

    def snapshot(self) -> list[str]:
        """Of every task; their ids."""
        for partition in range(PARTITIONS):
            with self.client(partition) as client:
                client.snapshot(self.name, partition)
                until(partial(self._is_taken, client, partition), what="a snapshot")
        return [list_snapshots(self.url, self.name, p)[0].id for p in range(PARTITIONS)]

    def _is_taken(self, client: FlightHostClient, partition: int) -> bool:
        status = client.snapshot_status(self.name, partition)
        assert status["error"] is None
        return bool(status["state"] == "done")


def partition_of(store: str, key: bytes) -> int:
    return partition_for(key[:-12] if store in WINDOWED else key, PARTITIONS)


def int64(number: int) -> bytes:
    return number.to_bytes(8, "big", signed=True)
