"""Keys and values as people write and read them."""

from __future__ import annotations

import datetime as dt
import json
import math
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from state_lib.errors import InvalidRequest
from state_lib.keys import window_key
from state_lib.protocol.json_forms import (
    key_from_json,
    key_json,
    key_text,
    parse_key,
    parse_prefix,
    prefix_bytes,
    value_json,
)
from state_lib.serdes import serde_from
from state_lib.specs import StoreSpec
from state_lib.stores.memory.engine import MemoryEngine
from state_lib.stores.segments import segment_family
from state_lib.stores.selection import KeyRange, WindowRange
from tests.support.selected import selected

STRUCT = {"struct": [["a", "int64"], ["raw", "bytes"], ["_hidden", "utf8"]]}
KEYS: dict[str, tuple[Any, st.SearchStrategy[Any]]] = {
    "utf8": ("utf8", st.text()),
    "int64": ("int64", st.integers(-(2**63), 2**63 - 1)),
    "int32": ("int32", st.integers(-(2**31), 2**31 - 1)),
    "float64": ("float64", st.floats(allow_nan=False)),
    "bytes": ("bytes", st.binary()),
    "bool": ("bool", st.booleans()),
    "date": ("date", st.dates()),
    "timestamp": ("timestamp", st.datetimes(timezones=st.just(dt.UTC))),
    "timestamp_ntz": ("timestamp_ntz", st.datetimes()),
    "decimal": ("decimal(5,2)", st.decimals(-999, 999, places=2)),
    "columns": (
        {"struct": [["route", "utf8"], ["day", "date"], ["price", "decimal(5,2)"]]},
        st.fixed_dictionaries(
            {"route": st.text(), "day": st.dates(), "price": st.just(Decimal("1.50"))}
        ),
    ),
    "json": ("json", st.dictionaries(st.text(), st.integers(0, 9) | st.none())),
    "struct": (
        STRUCT,
        st.fixed_dictionaries(
            {"a": st.none() | st.integers(0, 9), "raw": st.binary(), "_hidden": st.text()}
        ),
    ),
}


@pytest.mark.parametrize("kind", KEYS)
@given(data=st.data())
def test_keys_survive_urls_and_json(kind: str, data: st.DataObject) -> None:
    serde, keys = KEYS[kind]
    key = data.draw(keys)
    assert parse_key(serde, key_text(serde, key)) == key
    assert key_from_json(serde, key_json(serde, key)) == key


@pytest.mark.parametrize(
    ("serde", "text"),
    [
        ("int64", ""),
        ("int64", "1_000"),
        ("int64", " 1"),
        ("int64", "१"),
        ("int64", "1" * 20),
        ("int32", "5.0"),
        ("float64", "one"),
        ("bytes", "0"),
        ("bytes", "0x00"),
        ("bytes", "00 ff"),
        ("json", "{"),
        (STRUCT, "nonsense"),
        (STRUCT, '{"raw": "zz"}'),
        (STRUCT, "[1]"),
        ("date", "2013-13-01"),
        ("timestamp", "noon"),
        ("decimal(5,2)", "1,5"),
        ("decimal(5,2)", "1.505"),
        ("bool", "yes"),
    ],
)
def test_what_is_no_key(serde: Any, text: str) -> None:
    with pytest.raises(InvalidRequest, match="is not a key"):
        parse_key(serde, text)


@pytest.mark.parametrize(
    ("serde", "said"),
    [
        ("decimal(5,2)", "a number with 2 digits behind the point at most"),
        ("bool", "true or false"),
        (STRUCT, "with all of its columns"),
    ],
)
def test_what_a_key_looks_like_is_said(serde: Any, said: str) -> None:
    with pytest.raises(InvalidRequest, match=said):
        parse_key(serde, "x")


def test_values() -> None:
    assert value_json(STRUCT, {"a": 1, "raw": b"\xff", "_hidden": "x"}) == {"a": 1, "raw": "ff"}
    assert value_json("json", {"_id": 1}) == {"_id": 1}, "only a struct's own fields are hidden"
    assert [value_json("float64", f) for f in (0.5, math.nan, math.inf, -math.inf)] == [
        0.5,
        "NaN",
        "Infinity",
        "-Infinity",
    ]


def test_prefixes() -> None:
    assert prefix_bytes("utf8", parse_prefix("utf8", "ü")) == b"\xc3\xbc"
    assert prefix_bytes("bytes", parse_prefix("bytes", "00ff")) == b"\0\xff"
    for serde in ("int64", "json", "date"):
        for asked in (parse_prefix, prefix_bytes):
            with pytest.raises(InvalidRequest, match="no prefixes"):
                asked(serde, "1")
    for serde, wrong in (("utf8", b"x"), ("bytes", "00ff")):
        with pytest.raises(InvalidRequest, match="prefix"):
            prefix_bytes(serde, wrong)
    with pytest.raises(InvalidRequest, match="is not a prefix of serde 'bytes'"):
        parse_prefix("bytes", "0")


def test_prefixes_of_several_columns() -> None:
    serde = {"struct": [["origin", "utf8"], ["dest", "utf8"], ["day", "date"]]}
    route = {"day": "2013-01-31", "origin": "JFK", "dest": "LAX"}
    key = serde_from(serde).serialize(parse_key(serde, json.dumps(route)))
    for first in ({"day": "2013-01-31"}, {"day": "2013-01-31", "origin": "JFK"}, route):
        assert key.startswith(prefix_bytes(serde, parse_prefix(serde, json.dumps(first))))
    part = {"day": dt.date(2013, 1, 31)}
    assert parse_key(serde, key_text(serde, part)) == part, "a client's prefix, in its URL"
    for wrong, said in (
        ({"origin": "JFK"}, r"the first of \['day', 'origin', 'dest'\]"),
        ({"day": None}, "'day' is not date"),
        ({"dya": "2013-01-31"}, "the first of"),
        ({}, "leave it out"),
        ([], "is not a prefix .* with the first of its columns"),
    ):
        with pytest.raises(InvalidRequest, match=said):
            prefix_bytes(serde, parse_prefix(serde, json.dumps(wrong)))
    with pytest.raises(InvalidRequest, match="not a mapping with"):
        prefix_bytes(serde, "day")


SPEC = StoreSpec("w", "window", window_size_ms=10, retention_ms=10**15)


@given(
    stored=st.sets(st.tuples(st.binary(max_size=3), st.integers(-(10**15), 10**15))),
    first=st.integers(-(10**15), 10**15),
    last=st.integers(-(10**15), 10**15),
    key=st.none() | st.binary(max_size=2),
    prefix=st.binary(max_size=2),
)
def test_window_slices_hold_what_was_asked_for(
    stored: set[tuple[bytes, int]], first: int, last: int, key: bytes | None, prefix: bytes
) -> None:
    """Against a filter; keys whose bytes run into the start's included."""
    engine = MemoryEngine("unused")
    for inner, start in stored:
        family = segment_family("w", start // SPEC.segment_interval_ms)
        engine.write({family: ([window_key(inner, start)], [b""])})
    found = [k for k, _ in selected(SPEC, engine, WindowRange(first, last, key, prefix))]
    oldest = -SPEC.retention_ms + 1
    assert sorted(found) == sorted(
        window_key(inner, start)
        for inner, start in stored
        if max(first, oldest) <= start <= last
        and (inner == key if key is not None else inner.startswith(prefix))
    )


@given(
    keys=st.sets(st.binary(max_size=3)),
    lower=st.none() | st.binary(max_size=3),
    upper=st.none() | st.binary(max_size=3),
    prefix=st.binary(max_size=2),
)
def test_key_slices_hold_what_was_asked_for(
    keys: set[bytes], lower: bytes | None, upper: bytes | None, prefix: bytes
) -> None:
    engine = MemoryEngine("unused")
    engine.write({"kv": (list(keys), [b""] * len(keys))})
    chosen = selected(StoreSpec("kv"), engine, KeyRange(lower, upper, prefix))
    assert [k for k, _ in chosen] == sorted(
        k
        for k in keys
        if k.startswith(prefix) and (lower or b"") <= k and (upper is None or k < upper)
    )
