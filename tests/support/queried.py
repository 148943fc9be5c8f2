"""Hosts over HTTP and three tasks with something in every kind of store."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import httpx
import orjson

from state_lib.changelog.admin import ensure_topics
from state_lib.changelog.log import KafkaLog
from state_lib.changelog.topics import plan_topics
from state_lib.driver.claims import write_claim
from state_lib.errors import Unavailable
from state_lib.host.http import HttpServer
from state_lib.host.metrics import HostMetrics
from state_lib.host.tasks import TaskManager
from state_lib.kafka import Kafka
from state_lib.keys import partition_for, window_key
from state_lib.protocol.addresses import HostAddress
from state_lib.protocol.marker import CommitHeader, Marker
from state_lib.protocol.placement import owner_of
from state_lib.protocol.positions import Positions
from state_lib.serdes import serde_from
from state_lib.specs import StoreSpec, Topology
from state_lib.stack.ports import free_port
from state_lib.task import Batch, Puts, StateTask, TaskContext
from tests.support.waiting import deadline_in

APP, TOKEN, PARTITIONS = "queried.app", "s3cret-ü", 3
HOUR = 3_600_000
NOON = 1_700_000_000_000 - 1_700_000_000_000 % HOUR
STRUCT = {"struct": [["n", "int64"], ["last", "utf8"], ["raw", "bytes"], ["_last_ts", "int64"]]}
ROUTE = {"struct": [["origin", "utf8"], ["day", "date"]]}
STOPS = {"struct": [["least", "decimal(5,2)"], ["stops", {"array": "utf8"}]]}
STORES = (
    StoreSpec("words", "timestamped-key-value", key_serde="utf8", value_serde=STRUCT),
    StoreSpec("numbers", key_serde="int64", value_serde="float64"),
    StoreSpec("raw", backend="memory"),
    StoreSpec("counter", key_serde="utf8", value_serde="int64"),
    StoreSpec("routes", key_serde=ROUTE, value_serde=STOPS),
    StoreSpec(
        "hours",
        "window",
        key_serde="utf8",
        value_serde="int64",
        window_size_ms=HOUR,
        retention_ms=4 * HOUR,
    ),
    StoreSpec(
        "route-hours",
        "window",
        key_serde=ROUTE,
        value_serde="int64",
        window_size_ms=HOUR,
        retention_ms=4 * HOUR,
    ),
)
DAYS = [date(1969, 12, 31), date(2013, 1, 31)]
ROUTES = [{"origin": origin, "day": day} for day in DAYS for origin in ("JFK", "LGA", "ZZZZ")]
"""In the order of their bytes."""
SHOWN_ROUTES = [{**route, "day": str(route["day"])} for route in ROUTES]
WORDS = ["a", "a/b", "../../etc", "..", ".", "%2F", "a b", "nul\0", "ünï", "z?#&", "", "ab", "abc"]
NUMBERS = {0: 0.5, 7: 1.25, -3: float("nan"), 2**62: float("-inf")}
STARTS = [NOON + hour * HOUR for hour in range(-6, 3)]  # the clock is NOON: the first two expired
Answer = dict[str, Any]


@dataclass
class Cluster:
    """Hosts in this process."""

    kafka: Kafka
    root: Path
    hosts: tuple[HostAddress, ...]
    app: str = APP
    managers: dict[str, TaskManager] = field(default_factory=dict)
    servers: list[HttpServer] = field(default_factory=list)

    def start(self) -> None:
        topology = Topology(self.app, PARTITIONS, STORES, sources=("lines",))
        ensure_topics(self.kafka.admin(), plan_topics(topology), 1, 1)
        epoch = write_claim(self.kafka, topology)
        for host in self.hosts:
            metrics = HostMetrics()
            (self.root / host.id).mkdir()
            context = TaskContext(
                KafkaLog(self.kafka), host.id, self.root / host.id, listener=metrics
            )
            manager = self.managers[host.id] = TaskManager(context, self.hosts, 60.0)
            manager.start()
            self.servers.append(HttpServer(manager, host, TOKEN, metrics))
            self.servers[-1].start()
        for partition in range(PARTITIONS):
            self._claim(partition, epoch)

    def _claim(self, partition: int, epoch: int) -> Marker:
        deadline = deadline_in(30)
        while True:
            try:
                return self.owner(partition)[1].claim(self.app, partition, epoch)
            except Unavailable:
                assert time.monotonic() < deadline
                time.sleep(0.05)

    def stop(self) -> None:
        for server in self.servers:
            server.stop()
        for manager in self.managers.values():
            manager.stop()

    def owner(self, partition: int) -> tuple[HostAddress, TaskManager]:
        address = owner_of(self.app, partition, self.hosts)
        return address, self.managers[address.id]

    def task(self, partition: int) -> StateTask:
        return self.owner(partition)[1].task(self.app, partition)

    def url_of(self, store: str, key: Any) -> str:
        """Of the host that owns a key."""
        partition = partition_for(key_bytes(store, key), PARTITIONS)
        return self.owner(partition)[0].http_url

    def commit(self, partition: int, puts: Mapping[str, Puts], dropped: int = 0) -> Marker:
        task = self.task(partition)
        before = task.marker
        header = CommitHeader(
            epoch=before.epoch,
            batch_number=before.batch_number + 1,
            from_=before.positions,
            to=Positions({("lines", partition): before.batch_number + 1}),
            stream_time_ms=NOON,
            dropped={"late": dropped} if dropped else {},
        )
        return task.commit(Batch(header, puts))


def key_bytes(store: str, key: Any) -> bytes:
    spec = next(s for s in STORES if s.name == store)
    return serde_from(spec.key_serde).serialize(key)


def load(cluster: Cluster) -> None:
    """Some data in every store, each key in its own partition."""
    words, numbers = serde_from(STRUCT), serde_from("float64")
    rows: list[dict[str, list[tuple[bytes, bytes, int]]]] = [{} for _ in range(PARTITIONS)]

    def add(store: str, key: Any, suffix: int | None, value: bytes, stamp: int) -> None:
        raw = key_bytes(store, key)
        stored = raw if suffix is None else window_key(raw, suffix)
        rows[partition_for(raw, PARTITIONS)].setdefault(store, []).append((stored, value, stamp))

    for i, word in enumerate(WORDS):
        value = words.serialize({"n": i, "last": word, "raw": b"\x00\xff", "_last_ts": 9})
        add("words", word, None, value, NOON + i)
    for number, half in NUMBERS.items():
        add("numbers", number, None, numbers.serialize(half), NOON)
    for byte in range(250):
        add("raw", bytes([byte % 5, byte]), None, bytes([byte]), NOON)
    for route in ROUTES:
        value = serde_from(STOPS).serialize({"least": Decimal("1.50"), "stops": ["LAX", None]})
        add("routes", route, None, value, NOON)
    for start in STARTS:
        for key in ("k", "kk", "other"):
            add("hours", key, start, serde_from("int64").serialize(start), start + 1)
        for route in ROUTES:
            add("route-hours", route, start, serde_from("int64").serialize(start), start + 1)
    for partition, stores in enumerate(rows):
        puts = {
            name: Puts([k for k, _, _ in found], [v for _, v, _ in found], [t for *_, t in found])
            for name, found in stores.items()
        }
        cluster.commit(partition, puts, dropped=partition)


def ask(url: str, path: str, status: int = 200, **query: Any) -> Answer:
    headers = {b"Authorization": f"Bearer {TOKEN}".encode()}
    answer = httpx.get(url + path, params=query or None, headers=headers)
    assert answer.status_code == status, answer.text
    body: Answer = orjson.loads(answer.content)
    return body


@contextmanager
def running(kafka: Kafka, root: Path, app: str = APP, count: int = 2) -> Iterator[Cluster]:
    """A cluster with data."""
    hosts = tuple(
        HostAddress(f"h{i}", "127.0.0.1", free_port(), free_port()) for i in range(1, count + 1)
    )
    made = Cluster(kafka, root, hosts, app)
    try:
        made.start()
        load(made)
        yield made
    finally:
        made.stop()
