"""Queries of key-value stores: points and ranges, by the client and over HTTP."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import quote

import pytest

from state_lib.client.query import QueryClient
from state_lib.host import reads as page_reads
from tests.support.queried import (
    APP,
    DAYS,
    NOON,
    PARTITIONS,
    ROUTES,
    SHOWN_ROUTES,
    WORDS,
    Answer,
    Cluster,
    ask,
)


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
            "batch_number": 1,
            "positions": {"lines": {found["task"][-1]: 1}},
            "stream_time_ms": NOON,
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


def test_keys_of_several_columns(client: QueryClient, cluster: Cluster) -> None:
    shown = SHOWN_ROUTES
    for key, seen in zip(ROUTES, shown, strict=True):
        found = client.get(APP, "routes", key)
        assert found is not None
        assert found["key"] == seen
        assert found["value"] == {"least": "1.50", "stops": ["LAX", None]}
        path = f"/v1/apps/{APP}/stores/routes/keys/{quote(json.dumps(seen), safe='')}"
        assert ask(cluster.url_of("routes", key), path)["key"] == seen
    assert [row["key"] for row in client.range(APP, "routes")] == shown
    assert [row["key"] for row in client.range(APP, "routes", ROUTES[1], ROUTES[4])] == shown[1:5]
    of_a_day = client.range(APP, "routes", prefix={"day": DAYS[1]})
    assert [row["key"] for row in of_a_day] == shown[3:]
    assert [r["key"] for r in client.range(APP, "routes", prefix=ROUTES[0])] == shown[:1]
    assert client.get(APP, "routes", {"origin": "EWR", "day": DAYS[0]}) is None
    for wrong in ("JFK", '["JFK"]', '{"origin":"JFK"}', '{"origin":"JFK","day":"today"}'):
        at = f"/v1/apps/{APP}/stores/routes/keys/{quote(wrong, safe='')}"
        assert ask(cluster.hosts[0].http_url, at, 400)
    for wrong in ("JFK", "{}", '{"origin":"JFK"}', '{"dya":"2013-01-31"}'):
        at = f"/v1/apps/{APP}/stores/routes/range"
        assert ask(cluster.hosts[0].http_url, at, 400, prefix=wrong)["code"] == "invalid-request"


def test_unknown_key_is_404_with_its_position(client: QueryClient, cluster: Cluster) -> None:
    assert client.get(APP, "words", "nosuch") is None
    path = f"/v1/apps/{APP}/stores/words/keys/nosuch"
    body = ask(cluster.url_of("words", "nosuch"), path, 404)
    assert body["code"] == "not-found"
    (position,) = body["details"]["position"].values()
    assert position["batch_number"] == 1


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
