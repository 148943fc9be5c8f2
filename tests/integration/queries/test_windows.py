"""Queries of window stores."""

from __future__ import annotations

import json
from urllib.parse import quote

import pytest

from state_lib.client.query import QueryClient
from state_lib.host import reads as page_reads
from tests.support.queried import (
    APP,
    DAYS,
    HOUR,
    NOON,
    ROUTES,
    SHOWN_ROUTES,
    STARTS,
    Cluster,
    ask,
)

LIVE = [start for start in STARTS if start > NOON - 4 * HOUR]


def test_windows_of_a_key(client: QueryClient, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = list(client.windows(APP, "hours", "k"))
    assert [row["window_start"] for row in rows] == LIVE
    assert rows[0] == {
        "key": "k",
        "window_start": LIVE[0],
        "window_end": LIVE[0] + HOUR,
        "window_start_time": "2023-11-14T19:00:00.000Z",
        "window_end_time": "2023-11-14T20:00:00.000Z",
        "value": LIVE[0],
        "timestamp": LIVE[0] + 1,
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


def test_windows_of_a_key_of_several_columns(client: QueryClient, cluster: Cluster) -> None:
    at = f"/v1/apps/{APP}/stores/route-hours/windows"
    for key, seen in zip(ROUTES, SHOWN_ROUTES, strict=True):
        rows = list(client.windows(APP, "route-hours", key))
        assert [(row["key"], row["window_start"]) for row in rows] == [(seen, s) for s in LIVE]
        path = f"{at}/{quote(json.dumps(seen), safe='')}"
        for host in cluster.hosts:
            assert ask(host.http_url, path)["entries"] == rows
    assert list(client.windows(APP, "route-hours", ROUTES[0] | {"origin": "EWR"})) == []
    for wrong in ("JFK", '{"origin":"JFK"}', '{"origin":"JFK","day":"today"}'):
        assert ask(cluster.hosts[0].http_url, f"{at}/{quote(wrong, safe='')}", 400)


def test_windows_of_keys_that_begin_alike(client: QueryClient, cluster: Cluster) -> None:
    rows = list(client.windows(APP, "route-hours", first=NOON, last=NOON, prefix={"day": DAYS[1]}))
    assert [row["key"] for row in rows] == SHOWN_ROUTES[3:]
    assert len(list(client.windows(APP, "route-hours", prefix=ROUTES[0]))) == len(LIVE)
    at = f"/v1/apps/{APP}/stores/route-hours/windows"
    prefix = json.dumps({"day": str(DAYS[1])})
    found = [
        row
        for host in cluster.hosts
        for row in ask(host.http_url, at, prefix=prefix, **{"from": NOON, "to": NOON})["entries"]
    ]
    assert sorted(found, key=lambda row: str(row["key"]["origin"])) == rows
    for wrong in ("JFK", "{}", '{"origin":"JFK"}', '{"dya":"2013-01-31"}'):
        assert ask(cluster.hosts[0].http_url, at, 400, prefix=wrong)["code"] == "invalid-request"
