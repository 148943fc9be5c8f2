"""What hosts say of stores, tasks and themselves; hosts and tasks that are away."""

from __future__ import annotations

from typing import Any

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from state_lib.client.query import QueryClient
from state_lib.errors import Unavailable
from state_lib.host import reads as page_reads
from state_lib.protocol.addresses import HostAddress
from state_lib.stack.ports import free_port
from state_lib.stores.selection import KeyRange
from tests.support.queried import (
    APP,
    HOUR,
    NOON,
    PARTITIONS,
    STORES,
    STRUCT,
    TOKEN,
    WORDS,
    Cluster,
    ask,
)


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
    assert found["holdfast_marker_batch_number"][task,] == marker.batch_number
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
    assert found["holdfast_compaction_pending"]["words", task] == 0
    assert (task,) in found["holdfast_num_running_compactions"]
    assert found["holdfast_block_cache_capacity_bytes"][()] > 1 << 20
    assert found["process_resident_memory_bytes"][()] > 1 << 20


def test_a_closed_task_is_503_and_not_ready(cluster: Cluster, monkeypatch: Any) -> None:
    host, manager = cluster.owner(0)
    monkeypatch.setattr(manager.openers, "open_soon", lambda _task: None)
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
