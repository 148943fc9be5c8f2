"""Records that would end the process, or never end, are dead letters like others."""

from __future__ import annotations

import json
import multiprocessing
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from state_lib.executor.avro.bounds import DEEPEST, Bounds
from state_lib.executor.avro.schema import normal
from tests.support.avro_schemas import Known, read
from tests.support.registry import framed, record
from tests.support.waiting import SLOWNESS

HEADER = b"\x00\x00\x00\x00\x07"
PLAIN = record("R", a=("int", 0))
CHAIN = record("R", a="int", next=["null", "holdfast.tests.R"])
TREE = record("R", a="int", of={"type": "array", "items": "holdfast.tests.R"})
MAPS = record("R", a="int", of={"type": "map", "values": "holdfast.tests.R"})
ITSELF = record("R", a="int", me="holdfast.tests.R")
EMPTY = record("Empty")
MANY = b"\x80\x80\x80\x80\x80\x80\x80\x02\x00"  # 2^49 items, and no more of them


def chain(levels: int, schema: Any = CHAIN) -> bytes:
    """Records within records, the innermost first."""
    if schema is TREE:
        return b"\x02\x02" * levels + b"\x02" + b"\x00" * (levels + 1)
    if schema is MAPS:
        return b"\x02\x02\x00" * levels + b"\x02" + b"\x00" * (levels + 1)
    return b"\x02\x02" * levels + b"\x02\x00"


BAD = [
    (CHAIN, chain(50_000)),
    (TREE, chain(50_000, TREE)),
    (MAPS, chain(50_000, MAPS)),
    (ITSELF, b"\x02" * 100_000),
    (record("R", a="int", of={"type": "array", "items": "null"}), b"\x02" + MANY),
    (record("R", a="int", of={"type": "array", "items": EMPTY}), b"\x02" + MANY),
    (
        record(
            "R",
            a="int",
            of={"type": "array", "items": {"type": "fixed", "name": "F", "size": 0}},
        ),
        b"\x02" + MANY,
    ),
    (
        record(
            "R",
            a="int",
            of={"type": "array", "items": {"type": "array", "items": "null"}},
        ),
        b"\x02\xc8\x01" + (b"\x80\x80\x04\x00" * 100) + b"\x00",
    ),
]
"""Schemas, and bytes that compiled readers do not survive, or never come to an end of."""


def ending() -> None:
    """In a process of its own: 0 if all are dead letters, else the number of the first."""
    for number, (schema, tail) in enumerate(BAD, 1):
        found = read(PLAIN, Known({7: (json.dumps(schema),)}), HEADER + tail)
        if found != [(None, "undecodable")]:
            raise SystemExit(number)


def test_what_would_end_the_worker_is_undecodable() -> None:
    process = multiprocessing.get_context("spawn").Process(target=ending)
    process.start()
    process.join(30 * SLOWNESS)
    code = process.exitcode
    process.kill()
    assert code == 0


@pytest.mark.parametrize("schema", [CHAIN, TREE, MAPS])
def test_what_is_not_too_deep_is_read(schema: Any) -> None:
    known = Known({7: (json.dumps(schema),)})
    assert read(PLAIN, known, HEADER + chain(200, schema)) == [({"a": 1}, None)]
    assert read(PLAIN, known, HEADER + chain(DEEPEST, schema)) == [(None, "undecodable")]


def test_items_without_a_byte_are_read() -> None:
    schema = record("R", a="int", of={"type": "array", "items": "null"})
    known, value = Known({7: (json.dumps(schema),)}), {"a": 1, "of": [None] * 1000}
    assert read(PLAIN, known, framed(7, schema, value)) == [({"a": 1}, None)]


@pytest.mark.parametrize(
    ("schema", "needed"),
    [
        (CHAIN, True),
        (ITSELF, True),
        (record("R", a={"type": "array", "items": ["null", "int"]}), False),
        (record("R", a={"type": "map", "values": "null"}), False),
        (record("R", a=record("In", x="null"), b={"type": "array", "items": "string"}), False),
        (record("R", a=record("In", x="int"), b="holdfast.tests.In"), False),
        (record("R", a=EMPTY, b={"type": "array", "items": "holdfast.tests.Empty"}), True),
    ],
)
def test_others_cost_nothing(schema: Any, needed: bool) -> None:
    assert Bounds(normal([json.dumps(schema)])).needed is needed


ANY = record(
    "R",
    a="int",
    b=["null", "string", {"type": "fixed", "name": "F", "size": 3}],
    c={"type": "map", "values": {"type": "array", "items": ["null", "holdfast.tests.R"]}},
    d="boolean",
    e=["float", "double", "bytes"],
    f={"type": "enum", "name": "E", "symbols": ["X", "Y"]},
)


def values(depth: int) -> st.SearchStrategy[Any]:
    inner = st.none() if depth == 0 else st.none() | values(depth - 1)
    return st.fixed_dictionaries(
        {
            "a": st.integers(-(2**31), 2**31 - 1),
            "b": st.none() | st.text(max_size=3) | st.just(b"abc"),
            "c": st.dictionaries(st.text(max_size=2), st.lists(inner, max_size=2), max_size=2),
            "d": st.booleans(),
            "e": st.floats(allow_nan=False) | st.binary(max_size=3),
            "f": st.sampled_from("XY"),
        }
    )


@given(values(2))
def test_good_records_pass(value: Any) -> None:
    known = Known({7: (json.dumps(ANY),)})
    assert read(PLAIN, known, framed(7, ANY, value)) == [({"a": value["a"]}, None)]
