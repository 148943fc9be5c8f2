"""Queries of window stores."""

from __future__ import annotations

import pytest

from state_lib.client.query import QueryClient
from state_lib.host.http import reads as page_reads
from tests.support.queried import (
    APP,
    HOUR,
    NOON,
    STARTS,
)


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
