"""Bytes that stores already hold: written down, from before kinds had parts."""

from __future__ import annotations

import math
from typing import Any

import pyarrow as pa
import pytest

from state_lib.serdes import serde_from

FIELDS = ["int64", "int32", "float64", "bool", "utf8", "bytes", "int64"]
NAMES = ["n", "i", "x", "ok", "t", "raw", "_last_ts"]
WIDE = ["utf8", "int64"] * 4 + ["utf8"]
STRUCTS: list[tuple[list[str], list[Any], str]] = [
    (
        FIELDS,
        [-2, 7, -0.5, True, "ü", b"\0\xff", 1_357_034_400_000],
        "00fffffffffffffffe00000007bfe0000000000000010000013bf58da90000000002c3bc0000000200ff",
    ),
    (FIELDS, [None] * 7, "7f" + "00" * 37),
    (
        FIELDS,
        [2**63 - 1, -(2**31), math.inf, False, "", b"", 0],
        "007fffffffffffffff800000007ff0000000000000" + "00" * 17,
    ),
    (
        WIDE,
        ["t0", 1, "t2", 3, "t4", 5, "t6", 7, None],
        "00010000000000000001000000000000000300000000000000050000000000000007"
        "000000027430000000027432000000027434000000027436" + "00" * 4,
    ),
]
SINGLE: list[tuple[str, Any, str]] = [
    ("int64", -1, "ffffffffffffffff"),
    ("float64", -0.5, "bfe0000000000000"),
    ("utf8", "ü", "c3bc"),
    ("bytes", b"\0\xff", "00ff"),
    ("json", {"b": 1, "a": [None, 1.5]}, "7b2261223a5b6e756c6c2c312e355d2c2262223a317d"),
]


def both_ways(described: Any, value: Any, kept: str) -> None:
    serde, data = serde_from(described), bytes.fromhex(kept)
    assert serde.serialize(value) == data
    assert serde.deserialize(data) == value
    column = serde.decode_arrow(pa.array([data, None], pa.binary()))
    assert serde.encode_arrow(column).to_pylist() == [data, None]


@pytest.mark.parametrize(("kinds", "values", "kept"), STRUCTS)
def test_structs(kinds: list[str], values: list[Any], kept: str) -> None:
    names = NAMES if kinds is FIELDS else [f"f{i}" for i in range(len(kinds))]
    described = {"struct": [list(pair) for pair in zip(names, kinds, strict=True)]}
    both_ways(described, dict(zip(names, values, strict=True)), kept)


@pytest.mark.parametrize(("serde", "value", "kept"), SINGLE)
def test_single_values(serde: str, value: Any, kept: str) -> None:
    both_ways(serde, value, kept)
