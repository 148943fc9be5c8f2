"""Queries that are wrong, before anything is sent; and rows as a table."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import pytest

from state_lib.cli._query import _flat, find, position_table
from state_lib.client.query import QueryClient
from state_lib.errors import HoldfastError, InvalidRequest, SerdeError
from state_lib.protocol.addresses import HostAddress

NOON = dt.datetime(2013, 1, 31, 12, tzinfo=dt.UTC)
NAIVE = NOON.replace(tzinfo=None)
ROUTE = {"struct": [["origin", "utf8"], ["at", "timestamp"]]}
BOUNDS: list[tuple[Any, Any, Any]] = [
    ("timestamp", NOON, NAIVE),
    ("timestamp_ntz", NAIVE, NOON),
    ("date", NOON.date(), "2013-01-31"),
    ("decimal(10,2)", Decimal("120.5"), Decimal("120.505")),
    ("bool", True, "true"),
    ("bytes", b"\0\xff", "00ff"),
    ("utf8", "a", b"a"),
    ("int64", 1, "1"),
    (ROUTE, {"origin": "JFK", "at": NOON}, "JFK"),
    (ROUTE, {"at": NOON, "origin": "JFK"}, {"at": NAIVE, "origin": "JFK"}),
    (ROUTE, {"at": NOON, "origin": "JFK"}, {"at": NOON, "orign": "JFK"}),
]
PREFIXES: list[tuple[Any, Any]] = [
    (ROUTE, {"orign": "JFK"}),
    (ROUTE, {"origin": "JFK"}),
    (ROUTE, {"at": NAIVE}),
    (ROUTE, {"at": None}),
    (ROUTE, {}),
    (ROUTE, "origin"),
    ("utf8", b"a"),
    ("bytes", "00ff"),
    ("date", "x"),
    ("timestamp", NOON),
    ("decimal(10,2)", "x"),
    ("json", {}),
]


@pytest.fixture
def client() -> Iterator[QueryClient]:
    """Of a host where nobody listens."""
    with QueryClient([HostAddress("h1", "127.0.0.1", 1, 1)]) as made:
        yield made


def known(client: QueryClient, serde: Any, window_ms: int = 0) -> QueryClient:
    store = {"name": "s", "key_serde": serde, "window_size_ms": window_ms}
    client._known["a"] = {
        "partitions": 1,
        "stores": [store | {"segment_interval_ms": 2 * window_ms}],
    }
    return client


@pytest.mark.parametrize(("serde", "right", "wrong"), BOUNDS)
def test_bounds_are_keys(client: QueryClient, serde: Any, right: Any, wrong: Any) -> None:
    known(client, serde).range("a", "s", right, right)
    for bounds in ((wrong, None), (None, wrong)):
        with pytest.raises(SerdeError):
            client.range("a", "s", *bounds)
    with pytest.raises(SerdeError):
        client.get("a", "s", wrong)
    with pytest.raises(SerdeError):
        client.windows("a", "s", wrong)


@pytest.mark.parametrize(("serde", "prefix"), PREFIXES)
def test_prefixes_are_of_keys(client: QueryClient, serde: Any, prefix: Any) -> None:
    for ask in (known(client, serde).range, client.windows):
        with pytest.raises(InvalidRequest, match=r"^prefix|no prefixes"):
            ask("a", "s", prefix=prefix)


def test_prefixes_that_are_some(client: QueryClient) -> None:
    for serde, prefix in ((ROUTE, {"at": NOON}), ("utf8", "a"), ("utf8", ""), ("bytes", b"a")):
        for ask in (known(client, serde).range, client.windows):
            ask("a", "s", prefix=prefix)


@pytest.mark.parametrize("window_ms", [0, 10])
@pytest.mark.parametrize(
    ("serde", "text", "said"),
    [
        (ROUTE, '{"orign": "JFK"}', r"\['orign'\] are not the first of \['at', 'origin'\]"),
        (ROUTE, "{}", "leave it out"),
        (ROUTE, "JFK", "with the first of its columns"),
        ("date", "x", "no prefixes"),
        ("decimal(10,2)", "x", "no prefixes"),
        ("bytes", "0", "two hexadecimal digits"),
    ],
)
def test_the_command_says_what_a_prefix_is(
    client: QueryClient, serde: Any, text: str, said: str, window_ms: int
) -> None:
    known(client, serde, window_ms)
    with pytest.raises(InvalidRequest, match=said):
        find(client, "a", "s", None, (None, None), text)


def test_fields_that_are_called_like_columns_of_the_key_are_shown_as_well() -> None:
    row = {"key": {"origin": "JFK", "day": "2013-01-31"}, "value": {"origin": "LGA", "n": 1}}
    assert _flat(row) == {"origin": "JFK", "day": "2013-01-31", "value.origin": "LGA", "n": 1}
    assert _flat({"key": 1, "value": {"key": 2}}) == {"key": 1, "value.key": 2}


def test_a_host_of_a_version_before_is_told_so() -> None:
    now = {"epoch": 3, "batch_number": 7, "positions": {}, "stream_time_ms": -1}
    assert position_table({"a/0": now}).row_count == 1
    before = {"epoch": 3, "n": 7, "positions": {}, "clock": -1}
    with pytest.raises(HoldfastError, match="older than this 'holdfast': upgrade it"):
        position_table({"a/0": now, "a/1": before})
