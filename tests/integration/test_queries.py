"""Queries over HTTP, by the client and by the command: two real hosts, three tasks, one broker."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import orjson
import pytest
from prometheus_client.parser import text_string_to_metric_families
from typer.testing import CliRunner

from state_lib.addresses import HostAddress
from state_lib.changelog.admin import ensure_topics
from state_lib.changelog.topics import plan_topics
from state_lib.cli import app as command
from state_lib.client.query import QueryClient
from state_lib.errors import InvalidRequest, NotFound, Unauthorized, Unavailable
from state_lib.host.http import HttpServer
from state_lib.host.http import reads as page_reads
from state_lib.host.http.selection import KeyRange
from state_lib.host.metrics import HostMetrics
from state_lib.host.placement import owner_of
from state_lib.host.tasks import TaskManager
from state_lib.kafka import Kafka
from state_lib.keys import partition_for, window_key
from state_lib.marker import CommitHeader, Marker
from state_lib.serdes import serde_from
from state_lib.spark.claims import write_claim
from state_lib.specs import StoreSpec, Topology
from state_lib.stack.ports import free_port
from state_lib.task import Batch, Puts, StateTask, TaskContext
from tests.support.waiting import deadline_in

APP, TOKEN, PARTITIONS = "queried.app", "s3cret-ü", 3
HOUR = 3_600_000
NOON = 1_700_000_000_000 - 1_700_000_000_000 % HOUR
STRUCT = {"struct": [["n", "int64"], ["last", "utf8"], ["raw", "bytes"], ["_last_ts", "int64"]]}
STORES = (
    StoreSpec("words", "timestamped-key-value", key_serde="utf8", value_serde=STRUCT),
    StoreSpec("numbers", key_serde="int64", value_serde="float64"),
    StoreSpec("raw", backend="memory"),
    StoreSpec("counter", key_serde="utf8", value_serde="int64"),
    StoreSpec(
        "hours",
        "window",
        key_serde="utf8",
        value_serde="int64",
        window_size_ms=HOUR,
        retention_ms=4 * HOUR,
    ),
)
WORDS = ["a", "a/b", "../../etc", "..", ".", "%2F", "a b", "nul\0", "ünï", "z?#&", "", "ab", "abc"]
NUMBERS = {0: 0.5, 7: 1.25, -3: float("nan"), 2**62: float("-inf")}
STARTS = [NOON + hour * HOUR for hour in range(-6, 3)]  # the clock is NOON: the first two expired
Answer = dict[str, Any]


@dataclass
class Cluster:
    """Two hosts in this process."""

    kafka: Kafka
    root: Path
    topology: Topology
    hosts: tuple[HostAddress, ...]
    managers: dict[str, TaskManager] = field(default_factory=dict)
    servers: list[HttpServer] = field(default_factory=list)

    def start(self) -> None:
        ensure_topics(self.kafka.admin(), plan_topics(self.topology), 1, 1)
        epoch = write_claim(self.kafka, self.topology)
        for host in self.hosts:
            metrics = HostMetrics()
            (self.root / host.id).mkdir()
            context = TaskContext(self.kafka, host.id, self.root / host.id, listener=metrics)
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
                return self.owner(partition)[1].claim(APP, partition, epoch)
            except Unavailable:
                assert time.monotonic() < deadline
                time.sleep(0.05)

    def stop(self) -> None:
        for server in self.servers:
            server.stop()
        for manager in self.managers.values():
            manager.stop()

    def owner(self, partition: int) -> tuple[HostAddress, TaskManager]:
        address = owner_of(APP, partition, self.hosts)
        return address, self.managers[address.id]

    def task(self, partition: int) -> StateTask:
        return self.owner(partition)[1].task(APP, partition)

    def url_of(self, store: str, key: Any) -> str:
        """Of the host that owns a key."""
        partition = partition_for(key_bytes(store, key), PARTITIONS)
        return self.owner(partition)[0].http_url

    def commit(self, partition: int, puts: Mapping[str, Puts], dropped: int = 0) -> Marker:
        task = self.task(partition)
        before = task.marker
        header = CommitHeader(
            epoch=before.epoch,
            n=before.n + 1,
            from_=before.positions,
            to={"lines": {str(partition): before.n + 1}},
            clock=NOON,
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
    for start in STARTS:
        for key in ("k", "kk", "other"):
            add("hours", key, start, serde_from("int64").serialize(start), start + 1)
    for partition, stores in enumerate(rows):
        puts = {
            name: Puts([k for k, _, _ in found], [v for _, v, _ in found], [t for *_, t in found])
            for name, found in stores.items()
        }
        cluster.commit(partition, puts, dropped=partition)


@pytest.fixture(scope="module")
def cluster(kafka: Kafka, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    hosts = tuple(HostAddress(f"h{i}", "127.0.0.1", free_port(), free_port()) for i in (1, 2))
    topology = Topology(APP, PARTITIONS, STORES, sources=("lines",))
    made = Cluster(kafka, tmp_path_factory.mktemp("hosts"), topology, hosts)
    try:
        made.start()
        load(made)
        yield made
    finally:
        made.stop()


@pytest.fixture(scope="module")
def client(cluster: Cluster) -> Iterator[QueryClient]:
    with QueryClient(cluster.hosts, TOKEN, page_rows=7) as made:
        yield made


def ask(url: str, path: str, status: int = 200, **query: Any) -> Answer:
    headers = {b"Authorization": f"Bearer {TOKEN}".encode()}
    answer = httpx.get(url + path, params=query or None, headers=headers)
    assert answer.status_code == status, answer.text
    body: Answer = orjson.loads(answer.content)
    return body


# ---------------------------------------------------------------------- points


@pytest.mark.parametrize("word", WORDS)
def test_any_text_is_a_key(client: QueryClient, word: str) -> None:
    found = client.get(APP, "words", word)
    assert found is not None
    assert found["key"] == word
    assert found["value"] == {"n": WORDS.index(word), "last": word, "raw": "00ff"}, "no _last_ts"
    assert found["timestamp"] == NOON + WORDS.index(word)
    assert found["position"] == {
        found["task"]: {
            "epoch": 0,
            "n": 1,
            "positions": {"lines": {found["task"][-1]: 1}},
            "clock": NOON,
        }
    }


def test_numbers_and_bytes_as_keys(client: QueryClient, cluster: Cluster) -> None:
    shown = {-3: "NaN", 2**62: "-Infinity", 0: 0.5, 7: 1.25}
    for key, value in shown.items():
        found = client.get(APP, "numbers", key)
        assert found is not None
        assert (found["key"], found["value"]) == (key, value)
        assert "timestamp" not in found
    found = client.get(APP, "raw", b"\x01\x06")
    assert found is not None
    assert (found["key"], found["value"]) == ("0106", "06")
    for path in ("numbers/keys/seven", "numbers/keys/9223372036854775808", "raw/keys/0g"):
        assert ask(cluster.hosts[0].http_url, f"/v1/apps/{APP}/stores/{path}", 400)


def test_unknown_key_is_404_with_its_position(client: QueryClient, cluster: Cluster) -> None:
    assert client.get(APP, "words", "nosuch") is None
    path = f"/v1/apps/{APP}/stores/words/keys/nosuch"
    body = ask(cluster.url_of("words", "nosuch"), path, 404)
    assert body["code"] == "not-found"
    (position,) = body["details"]["position"].values()
    assert position["n"] == 1


def test_another_hosts_key_is_421_and_names_the_owner(cluster: Cluster) -> None:
    owner = cluster.url_of("words", "a")
    (other,) = (h.http_url for h in cluster.hosts if h.http_url != owner)
    body = ask(other, f"/v1/apps/{APP}/stores/words/keys/a", 421)
    assert body["code"] == "not-owner"
    assert body["details"]["url"] == owner


# ---------------------------------------------------------------------- ranges


def test_ranges_of_all_hosts_are_merged_in_key_order(client: QueryClient) -> None:
    rows = client.range(APP, "words")
    assert [row["key"] for row in rows] == sorted(WORDS, key=str.encode)
    assert set(rows.position) == {f"{APP}/{p}" for p in range(PARTITIONS)}
    assert [row["key"] for row in client.range(APP, "words", "a", "ab")] == [
        "a",
        "a b",
        "a/b",
        "ab",
    ]
    assert [r["key"] for r in client.range(APP, "words", prefix="ab")] == ["ab", "abc"]
    assert [r["key"] for r in client.range(APP, "words", "abb", prefix="ab")] == ["abc"]
    assert [r["key"] for r in client.range(APP, "numbers")] == [0, 7, 2**62, -3]
    assert [r["key"] for r in client.range(APP, "numbers", 1)] == [7, 2**62, -3]
    assert list(client.range(APP, "words", "x", "b")) == []


def test_a_memory_store_and_pages_that_end_early(
    client: QueryClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = [row["key"] for row in client.range(APP, "raw")]
    assert keys == sorted(bytes([b % 5, b]).hex() for b in range(250))
    monkeypatch.setattr(page_reads, "MOST_BYTES", 4)
    assert [row["key"] for row in client.range(APP, "raw", prefix=b"\x03")] == keys[150:200]
    assert client.count(APP, "raw") == 250


def test_pages_have_cursors_until_the_end(cluster: Cluster) -> None:
    url, path = cluster.hosts[0].http_url, f"/v1/apps/{APP}/stores/raw/range"
    whole = ask(url, path, limit=10_000)
    assert whole["cursor"] is None
    seen: list[Answer] = []
    query: dict[str, Any] = {"limit": 11}
    while query.get("cursor", "") is not None:
        page = ask(url, path, **query)
        assert len(page["entries"]) <= 11
        seen += page["entries"]
        query["cursor"] = page["cursor"]
    assert seen == whole["entries"]


# ---------------------------------------------------------------------- windows


def test_windows_of_a_key(client: QueryClient, monkeypatch: pytest.MonkeyPatch) -> None:
    live = [start for start in STARTS if start > NOON - 4 * HOUR]
    rows = list(client.windows(APP, "hours", "k"))
    assert [row["window_start"] for row in rows] == live
    assert rows[0] == {
        "key": "k",
        "window_start": live[0],
        "window_end": live[0] + HOUR,
        "window_start_time": "2023-11-14T19:00:00.000Z",
        "window_end_time": "2023-11-14T20:00:00.000Z",
        "value": live[0],
        "timestamp": live[0] + 1,
    }
    between = client.windows(APP, "hours", "k", NOON, "2023-11-14T23:00:00Z")
    assert [row["window_start"] for row in between] == [NOON, NOON + HOUR]
    assert list(client.windows(APP, "hours", "nosuch")) == []
    monkeypatch.setattr(page_reads, "MOST_SCANNED", 1)
    assert list(client.windows(APP, "hours", "k")) == rows


def test_windows_of_all_keys(client: QueryClient, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = list(client.windows(APP, "hours", first=NOON - HOUR, last=NOON))
    expected = {(k, s) for k in ("k", "kk", "other") for s in (NOON - HOUR, NOON)}
    assert {(r["key"], r["window_start"]) for r in rows} == expected
    assert len(rows) == 6
    order = [(r["window_start"] // (2 * HOUR), r["key"].encode()) for r in rows]
    assert order == sorted(order)
    monkeypatch.setattr(page_reads, "MOST_SCANNED", 2)
    assert list(client.windows(APP, "hours", first=NOON - HOUR, last=NOON)) == rows
    assert {r["key"] for r in client.windows(APP, "hours", prefix="k")} == {"k", "kk"}
    assert client.count(APP, "hours") == 3 * 6


# ---------------------------------------------------------------------- bad input


BAD = [
    ("words/range?limit=0", 400),
    ("words/range?limit=10001", 400),
    ("words/range?limit=x", 400),
    ("words/range?cursor=nonsense", 400),
    ("words/range?cursor=WzEsMl0", 400),
    ("words/range?from=%FF", 400),
    ("words/keys/%FF", 400),
    ("numbers/keys/7.5", 400),
    ("numbers/keys/99999999999999999999", 400),
    ("numbers/range?prefix=1", 400),
    ("raw/range?prefix=0", 400),
    ("hours/windows?from=yesterday", 400),
    ("hours/windows?to=9223372036854775808", 400),
    ("hours/keys/k", 400),
    ("hours/range", 400),
    ("words/windows", 400),
    ("words/windows/a", 400),
    ("words/nosuch", 404),
    ("nosuch/keys/a", 404),
    ("..%2Fwords/keys/a", 404),
    ("%2E%2E/keys/a", 400),
    (".hidden/count", 400),
    ("a%00b/count", 400),
    ("%C3%BC/count", 400),
    ("words%2F..%2Fraw/count", 404),
]


@pytest.mark.parametrize(("path", "status"), BAD)
def test_bad_requests_are_told_so(cluster: Cluster, path: str, status: int) -> None:
    body = ask(cluster.hosts[0].http_url, f"/v1/apps/{APP}/stores/{path}", status)
    assert set(body) == {"code", "message", "details"}
    assert body["code"] in {"invalid-request", "invalid-name", "not-found", "serde"}


@pytest.mark.parametrize(
    ("app", "status"),
    [("nosuch", 404), ("%2E%2E", 400), ("a%2Fb", 404), ("%00", 400), ("%C3%A4", 400), ("%FF", 400)],
)
def test_unknown_and_impossible_applications(cluster: Cluster, app: str, status: int) -> None:
    before = sorted(path.name for path in cluster.root.rglob("*") if path.is_dir())
    for rest in ("stores", "stores/words/keys/a", "stores/words/count"):
        assert set(ask(cluster.hosts[0].http_url, f"/v1/apps/{app}/{rest}", status)) == {
            "code",
            "message",
            "details",
        }
    assert sorted(path.name for path in cluster.root.rglob("*") if path.is_dir()) == before


def test_the_client_names_what_is_unknown(client: QueryClient) -> None:
    with pytest.raises(NotFound, match="no application 'nosuch'"):
        client.get("nosuch", "words", "a")
    with pytest.raises(NotFound, match="no store 'nosuch'"):
        client.get(APP, "nosuch", "a")
    with pytest.raises(NotFound):
        client.get("../../x", "words", "a")
    with pytest.raises(InvalidRequest, match="windows"):
        client.get(APP, "hours", "k")


# ---------------------------------------------------------------------- token


def test_every_route_wants_the_token(cluster: Cluster) -> None:
    url = cluster.hosts[0].http_url
    described = httpx.get(f"{url}/openapi.json").json()
    paths = [p.format(app=APP, store="words", key="a") for p in described["paths"]]
    assert len(paths) >= 10
    paths += ["/nosuch", f"/v1/apps/{APP}/stores/words/keys/", "//v1/apps", "/V1/apps", "/metrics/"]
    right = f"Bearer {TOKEN}".encode()
    wrong: list[list[tuple[bytes, bytes]]] = [
        [],
        [(b"Authorization", b"")],
        [(b"Authorization", b"Bearer")],
        [(b"Authorization", b"Bearer " + TOKEN.encode()[:-1])],
        [(b"Authorization", b"Bearer wrong")],
        [(b"Authorization", b"Basic " + TOKEN.encode())],
        [(b"Authorization", TOKEN.encode())],
        [(b"Authorization", right), (b"Authorization", b"Bearer wrong")],
    ]
    with httpx.Client(base_url=url) as http:
        for path in paths:
            if path in {"/livez", "/readyz"}:
                assert http.get(path).status_code == 200
                continue
            for headers in wrong:
                refused = http.get(path, headers=headers)
                assert refused.status_code == 401, path
                assert refused.headers["WWW-Authenticate"] == "Bearer"
                assert refused.json()["code"] == "unauthorized"
            assert http.get(path, headers={b"Authorization": right}).status_code != 401
            assert http.post(path).status_code == 401
    for token in (None, "wrong"):
        with QueryClient(cluster.hosts, token) as other, pytest.raises(Unauthorized):
            other.stores(APP)


def test_openapi_describes_parameters_answers_and_the_token(cluster: Cluster) -> None:
    found = httpx.get(f"{cluster.hosts[0].http_url}/openapi.json").json()
    windows = found["paths"]["/v1/apps/{app}/stores/{store}/windows/{key}"]["get"]
    assert [p["name"] for p in windows["parameters"]] == [
        "key", "app", "store", "limit", "cursor", "from", "to",
    ]  # fmt: skip
    assert all(p.get("description") for p in windows["parameters"])
    assert windows["security"] == [{"HTTPBearer": []}]
    assert {"200", "400", "401", "404", "421", "503"} <= set(windows["responses"])


# ---------------------------------------------------------------------- listing, health, metrics


def test_stores_of_all_hosts(client: QueryClient, cluster: Cluster) -> None:
    assert client.apps() == [APP]
    found = client.stores(APP)
    assert [t["task"] for t in found["tasks"]] == [f"{APP}/{p}" for p in range(PARTITIONS)]
    assert {t["state"] for t in found["tasks"]} == {"open"}
    assert [t["dropped"] for t in found["tasks"]] == [{}, {"late": 1}, {"late": 2}]
    stores = {s["name"]: s for s in found["stores"]}
    assert stores["raw"]["approximate_entries"] == 250
    assert stores["words"]["approximate_entries"] == len(WORDS)
    assert stores["words"]["value_serde"] == STRUCT
    assert stores["hours"]["window_size_ms"] == HOUR
    (app,) = ask(cluster.hosts[0].http_url, "/v1/apps")["apps"]
    assert app["stores"] == [s.name for s in STORES]


def metrics_of(cluster: Cluster) -> dict[str, dict[tuple[str, ...], float]]:
    """Sample name → values of labels but ``app`` → value, of both hosts."""
    found: dict[str, dict[tuple[str, ...], float]] = {}
    for host in cluster.hosts:
        headers = {b"Authorization": f"Bearer {TOKEN}".encode()}
        answer = httpx.get(f"{host.http_url}/metrics", headers=headers)
        assert answer.headers["content-type"].startswith("text/plain")
        for family in text_string_to_metric_families(answer.text):
            for sample in family.samples:
                labels = tuple(v for k, v in sorted(sample.labels.items()) if k != "app")
                found.setdefault(sample.name, {})[labels] = sample.value
    return found


def test_metrics_speak_kafka_streams(cluster: Cluster) -> None:
    found, task = metrics_of(cluster), f"{APP}/2"
    marker = cluster.task(2).marker
    assert found["holdfast_task_open"] == {(f"{APP}/{p}",): 1 for p in range(PARTITIONS)}
    assert found["holdfast_commit_total"][task,] == 1
    assert found["holdfast_marker_n"][task,] == marker.n
    assert found["holdfast_stream_time_seconds"][task,] == NOON / 1000
    assert found["holdfast_commit_timestamp_seconds"][task,] == marker.written_at / 1000
    assert found["holdfast_position"]["2", task, "lines"] == 1
    assert found["holdfast_dropped_records_total"] == {
        ("late", f"{APP}/1"): 1,
        ("late", f"{APP}/2"): 2,
    }
    assert found["holdfast_restore_remaining_records_total"]["words", task] == 0
    keys = found["holdfast_estimate_num_keys"]
    assert sum(n for (store, _), n in keys.items() if store == "words") == len(WORDS)
    assert sum(found["holdfast_memory_store_bytes"].values()) > 250
    assert found["holdfast_size_all_mem_tables_bytes"]["words", task] > 0
    assert found["holdfast_block_cache_capacity_bytes"][()] > 1 << 20
    assert found["process_resident_memory_bytes"][()] > 1 << 20


def test_a_closed_task_is_503_and_not_ready(cluster: Cluster, monkeypatch: Any) -> None:
    host, manager = cluster.owner(0)
    monkeypatch.setattr(manager, "_open_soon", lambda _task: None)
    task = cluster.task(0)
    task.close()
    try:
        for path in ("words/range", "words/count", "hours/windows"):
            refused = httpx.get(
                f"{host.http_url}/v1/apps/{APP}/stores/{path}",
                headers={b"Authorization": f"Bearer {TOKEN}".encode()},
            )
            assert refused.status_code == 503
            assert refused.json()["code"] == "unavailable"
            assert int(refused.headers["Retry-After"]) > 0
        ready = httpx.get(f"{host.http_url}/readyz")
        assert ready.status_code == 503
        assert ready.json() == {"status": "not ready", "waiting": 1, "not_ready": {}}
        right = {b"Authorization": f"Bearer {TOKEN}".encode()}
        named = httpx.get(f"{host.http_url}/readyz", headers=right)
        assert f"{APP}/0" in named.json()["not_ready"], "to who may read the state"
        assert httpx.get(f"{host.http_url}/livez").status_code == 200
        listed = ask(host.http_url, f"/v1/apps/{APP}/stores")["tasks"]
        (closed,) = (t for t in listed if t["partition"] == 0)
        assert closed["state"] == "opening"
        assert closed["reason"]
    finally:
        task.open()
    assert httpx.get(f"{host.http_url}/readyz").status_code == 200


def test_a_task_reopened_during_a_scan_does_not_look_like_its_end(cluster: Cluster) -> None:
    """A scan of an engine that was closed ends without a word; a short answer would be a lie."""
    task = cluster.task(1)
    with page_reads.opened(task, "raw", KeyRange(), None) as (_, rows):
        assert next(rows).value is not None
        task.close()
        task.open()
        with pytest.raises(Unavailable, match="opened again"):
            list(rows)


def test_a_host_that_is_away_is_named(cluster: Cluster) -> None:
    away = HostAddress("h2", "127.0.0.1", free_port(), free_port())
    with QueryClient((cluster.hosts[0], away), TOKEN) as client:
        theirs = (w for w in WORDS if cluster.url_of("words", w) == cluster.hosts[0].http_url)
        assert client.get(APP, "words", next(theirs)) is not None
        with pytest.raises(Unavailable, match=f"h2.*{away.http_url}"):
            list(client.range(APP, "words"))


# ---------------------------------------------------------------------- position and commits


def test_answers_equal_the_changelog_at_their_position(cluster: Cluster) -> None:
    """Every commit n sets all entries of its task to n: any mixture would show."""
    stop = threading.Event()
    keys = {
        p: [f"c{i}" for i in range(99) if partition_for(f"c{i}".encode(), 3) == p]
        for p in (0, 1, 2)
    }
    failures: list[BaseException] = []

    def write() -> None:
        try:
            while not stop.is_set():
                for p in range(PARTITIONS):
                    n = cluster.task(p).marker.n + 1
                    value, rows = serde_from("int64").serialize(n), [k.encode() for k in keys[p]]
                    windows = [window_key(k, NOON) for k in rows]
                    size = len(rows)
                    cluster.commit(
                        p,
                        {
                            "counter": Puts(rows, [value] * size, [NOON] * size),
                            "hours": Puts(windows, [value] * size, [NOON] * size),
                        },
                    )
        except BaseException as error:  # noqa: BLE001 - shown by the test
            failures.append(error)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        with QueryClient(cluster.hosts, TOKEN) as client:
            looked, deadline = 0, deadline_in(60)
            moved: set[int] = set()
            while looked <= 100 or len(moved) <= 3:  # commits go on meanwhile
                assert time.monotonic() < deadline, (looked, moved)
                found = client.get(APP, "counter", "c7")
                if found is None:
                    continue
                assert found["value"] == found["position"][found["task"]]["n"]
                moved.add(found["value"])
                for host in cluster.hosts:
                    for path in ("counter/range", "hours/windows"):
                        page = ask(host.http_url, f"/v1/apps/{APP}/stores/{path}", limit=1000)
                        at = page["position"]
                        rows = [r for r in page["entries"] if r["key"][0] == "c"]
                        for row in rows:
                            p = partition_for(row["key"].encode(), 3)
                            n = at[f"{APP}/{p}"]["n"]
                            assert row["value"] == n
                            assert at[f"{APP}/{p}"]["positions"] == {"lines": {str(p): n}}
                        expected = sum(len(keys[int(t[-1])]) for t, m in at.items() if m["n"] > 1)
                        assert len(rows) == expected
                        looked += len(rows)
    finally:
        stop.set()
        writer.join()
    assert not failures


# ---------------------------------------------------------------------- the command


@pytest.fixture
def shell(cluster: Cluster, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> CliRunner:
    monkeypatch.chdir(tmp_path)
    hosts = ",".join(f"{h.id}={h.host}:{h.flight_port}/{h.http_port}" for h in cluster.hosts)
    for name in list(os.environ):
        if name.startswith("HOLDFAST_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOLDFAST_HOSTS", hosts)
    monkeypatch.setenv("HOLDFAST_TOKEN", TOKEN)
    monkeypatch.setenv("COLUMNS", "200")
    return CliRunner()


def test_query_prints_tables(shell: CliRunner) -> None:
    one = shell.invoke(command, ["query", APP, "words", "a/b", "-v"])
    assert one.exit_code == 0, one.output
    assert "a/b" in one.stdout
    assert "00ff" in one.stdout
    assert f"lines[{partition_for(b'a/b', 3)}]=" in one.stdout
    some = shell.invoke(command, ["query", APP, "words", "--prefix", "a", "--limit", "2"])
    assert some.exit_code == 0
    assert "raise --limit" in some.stderr
    hours = shell.invoke(command, ["query", APP, "hours", "k", "--from", str(NOON)])
    assert "2023-11-14T22:00:00.000Z" in hours.stdout
    strange = shell.invoke(command, ["query", APP, "words", "nul\0"])
    assert "nul\\x00" in strange.stdout


def test_query_prints_json_lines(shell: CliRunner) -> None:
    done = shell.invoke(command, ["query", APP, "numbers", "--json", "-v"])
    assert done.exit_code == 0
    rows = [orjson.loads(line) for line in done.stdout.splitlines()]
    assert [row["key"] for row in rows] == [0, 7, 2**62, -3]
    assert len(orjson.loads(done.stderr)["position"]) == PARTITIONS
    negative = shell.invoke(command, ["query", APP, "numbers", "--json", "--", "-3"])
    assert orjson.loads(negative.stdout) == {"key": -3, "value": "NaN"}


@pytest.mark.parametrize("name", ["query", "stores"])
def test_help_has_examples(name: str) -> None:
    done = CliRunner().invoke(command, [name, "--help"])
    assert f"holdfast {name} flights" in done.output


def test_stores_prints_both_tables_or_json(shell: CliRunner) -> None:
    done = shell.invoke(command, ["stores", APP])
    assert done.exit_code == 0, done.output
    assert f"{APP}/2" in done.stdout
    assert "n, last, raw" in done.stdout
    body = orjson.loads(shell.invoke(command, ["stores", APP, "--json"]).stdout)
    assert body["partitions"] == PARTITIONS


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["words", "nosuch"], "nothing for key 'nosuch'"),
        (["hours", "nosuch"], "nothing for key 'nosuch'"),
        (["nosuch"], "no store 'nosuch'"),
        (["numbers", "seven"], "decimal integer"),
        (["words", "a", "--prefix", "a"], "not both"),
        (["hours", "--from", "soon"], "not a time"),
    ],
)
def test_query_says_what_is_wrong(shell: CliRunner, arguments: list[str], said: str) -> None:
    done = shell.invoke(command, ["query", APP, *arguments])
    assert done.exit_code == 1
    assert done.stderr.startswith("Error: ")
    assert said in done.stderr
    assert done.stderr.count("\n") == 1
    assert done.stdout == ""
