"""Records of Avro as columns: by their own schemas, resolved to the reader's."""

from __future__ import annotations

import datetime as dt
import json
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from state_lib.errors import ConfigurationError, UnknownSchemas
from state_lib.executor.avro.decode import decoded, writer_of
from state_lib.executor.avro.schema import pinned
from tests.support.avro_schemas import Known, read
from tests.support.registry import framed, record

MOMENT = dt.datetime(2024, 2, 29, 12, 30, 15, 123000, tzinfo=dt.UTC)
MS = round(MOMENT.timestamp() * 1000)


def long(logical: str) -> dict[str, str]:
    return {"type": "long", "logicalType": logical}


def through(writer: Any, reader: Any, value: Any) -> Any:
    """One record, written by one schema and read by another."""
    known = Known({7: (json.dumps(writer),)})
    ((row, why),) = read(reader, known, framed(7, writer, value))
    return row if why is None else why


def same(kind: Any, value: Any) -> Any:
    schema = record("R", a=kind)
    found = through(schema, schema, {"a": value})
    other = record("R", a=kind, b=("int", 5))  # resolved to another reader's
    if not isinstance(found, str):
        resolved = through(schema, other, {"a": value})
        assert resolved == {**found, "b": 5}
        return found["a"]
    return found


@pytest.mark.parametrize(
    ("kind", "value", "column"),
    [
        ("boolean", True, True),
        ("int", -5, -5),
        ("long", 2**62, 2**62),
        ("double", 0.1, 0.1),
        ("string", "äö", "äö"),
        ("bytes", b"\x00\xff", b"\x00\xff"),
        (["null", "string"], None, None),
        (["null", "string"], "x", "x"),
        (["int", "long"], 2**40, 2**40),
        ({"type": "int", "logicalType": "date"}, dt.date(1969, 7, 20), dt.date(1969, 7, 20)),
        (long("timestamp-millis"), MOMENT, MOMENT),
        (long("timestamp-micros"), MOMENT, MOMENT),
        (
            long("local-timestamp-millis"),
            MOMENT.replace(tzinfo=None),
            MOMENT.replace(tzinfo=None),
        ),
        ({"type": "string", "logicalType": "uuid"}, "no uuid at all", "no uuid at all"),
        (
            {"type": "bytes", "logicalType": "decimal", "precision": 38, "scale": 2},
            Decimal("-123456789012345678901234567890123456.78"),
            Decimal("-123456789012345678901234567890123456.78"),
        ),
        (
            {
                "type": "fixed", "name": "M", "size": 4,
                "logicalType": "decimal", "precision": 5, "scale": 1,
            },
            Decimal("-7.5"),
            Decimal("-7.5"),
        ),
        ({"type": "fixed", "name": "F", "size": 2}, b"ab", b"ab"),
        ({"type": "enum", "name": "E", "symbols": ["RED", "BLUE"]}, "BLUE", "BLUE"),
        ({"type": "array", "items": ["null", "int"]}, [1, None], [1, None]),
        ({"type": "array", "items": long("timestamp-millis")}, [MOMENT], [MOMENT]),
        ({"type": "map", "values": "int"}, {"x": 1}, [("x", 1)]),
        (
            {"type": "map", "values": ["null", long("timestamp-millis")]},
            {"x": MOMENT, "y": None},
            [("x", MOMENT), ("y", None)],
        ),
        (
            record("In", x="int", at=["null", long("timestamp-millis")]),
            {"x": 1, "at": MOMENT},
            {"x": 1, "at": MOMENT},
        ),
    ],
)  # fmt: skip
def test_values_come_as_they_are(kind: Any, value: Any, column: Any) -> None:
    assert same(kind, value) == column


def test_schemas_are_resolved_as_avro_has_it() -> None:
    old = record("R", name="string", count="int", gone="string")
    new = record(
        "R",
        count="double",
        name=["null", "string"],
        more=(["null", "long"], None),
        raw=("bytes", "ÿ"),
    )
    assert through(old, new, {"name": "n", "count": 3, "gone": "x"}) == {
        "count": 3.0, "name": "n", "more": None, "raw": b"\xff",
    }  # fmt: skip
    renamed = record("R", title="string")
    renamed["fields"][0]["aliases"] = ["name"]
    assert through(record("R", name="string"), renamed, {"name": "n"}) == {"title": "n"}


@pytest.mark.parametrize(
    ("writer", "reader", "value", "column"),
    [
        (long("timestamp-millis"), long("timestamp-micros"), MOMENT, MOMENT),
        (long("timestamp-micros"), long("timestamp-millis"), MOMENT, MOMENT),
        (long("timestamp-millis"), "long", MOMENT, MS),
        ("long", long("timestamp-millis"), MS, MOMENT),
        (long("timestamp-nanos"), long("timestamp-micros"), MS * 10**6 + 999, MOMENT),
        (long("timestamp-nanos"), long("timestamp-millis"), MS * 10**6 + 999, MOMENT),
        (long("timestamp-micros"), long("timestamp-nanos"), MOMENT, MS * 10**6),
        (long("timestamp-nanos"), "long", MS * 10**6 + 999, MS * 10**6 + 999),
        (long("timestamp-millis"), long("of-my-own"), MOMENT, MS),
        (long("timestamp-micros"), "double", 2**60 + 1, float(2**60)),
        ({"type": "int", "logicalType": "date"}, "float", 5, 5.0),
        ({"type": "int", "logicalType": "date"}, long("of-my-own"), 5, 5),
        (["null", long("timestamp-millis")], long("timestamp-micros"), MOMENT, MOMENT),
        (long("timestamp-millis"), ["null", long("timestamp-micros")], MOMENT, MOMENT),
    ],
)
def test_moments_are_the_same_in_another_unit(
    writer: Any, reader: Any, value: Any, column: Any
) -> None:
    assert through(record("R", a=writer), record("R", a=reader), {"a": value}) == {"a": column}


@pytest.mark.parametrize(
    ("writer", "reader", "value"),
    [
        (record("R", a="string"), record("R", a="int"), {"a": "5"}),
        (record("R", a="int"), record("R", b="int"), {"a": 5}),
        (record("R", a=["null", "int"]), record("R", a="int"), {"a": None}),
        (record("R", a="int"), record("Other", a="int"), {"a": 5}),
        (
            record("R", a={"type": "enum", "name": "E", "symbols": ["X", "Y"]}),
            record("R", a={"type": "enum", "name": "E", "symbols": ["X"]}),
            {"a": "Y"},
        ),
        (
            record("R", a=long("timestamp-millis")),
            record("R", a=long("local-timestamp-millis")),
            {"a": MOMENT},
        ),
        (
            record("R", a={"type": "bytes", "logicalType": "decimal", "precision": 5, "scale": 2}),
            record("R", a={"type": "bytes", "logicalType": "decimal", "precision": 5, "scale": 1}),
            {"a": Decimal("1.25")},
        ),
    ],
)
def test_what_does_not_resolve_has_the_wrong_schema(writer: Any, reader: Any, value: Any) -> None:
    assert through(writer, reader, value) == "wrong-schema"


def test_a_dead_letter_says_which_schema_it_is_and_what_is_wrong_with_it() -> None:
    text, writer = pinned([json.dumps(record("R", a="int"))], "it"), record("R", a="string")
    known = Known({7: (json.dumps(writer),), 8: (), 9: ('"int"',)})
    raw = [framed(n, writer, {"a": "x"}) for n in (7, 8)] + [b"\x00\x00\x00\x00\x09\x02"]
    (made,) = decoded(iter([pa.array(raw, pa.binary())]), text, known)
    assert [one["why"] for one in made.to_pylist()] == ["wrong-schema"] * 3
    first, *others = [one["said"] for one in made.to_pylist()]
    assert first.startswith("schema 7: Schema mismatch: string is not int")
    assert others[0] == "schema 8 is none of Avro"
    assert others[1].startswith("schema 9")


def test_broken_bytes_are_told_from_the_others() -> None:
    schema = record("R", a="string", n="int")
    good = framed(1, schema, {"a": "x", "n": 1})
    known = Known({1: (json.dumps(schema),), 2: (), 3: ("{no schema",)})
    found = read(
        schema,
        known,
        good,
        None,
        b"",
        b"\x00\x00\x00\x00",
        b"\x01" + good[1:],
        good[:-1],
        good + b"\x00",
        good[:6] + b"\xff" + good[7:],  # no UTF-8
        b"\x00\x00\x00\x00\x02" + good[5:],
        b"\x00\x00\x00\x00\x03" + good[5:],
        good,
    )
    rows = [row for row, _ in found]
    assert rows == [{"a": "x", "n": 1}, *[None] * 9, {"a": "x", "n": 1}]
    assert [why for _, why in found] == [
        None, None, "undecodable", "undecodable", "undecodable", "undecodable", "undecodable",
        "undecodable", "wrong-schema", "wrong-schema", None,
    ]  # fmt: skip


def test_numbers_that_no_column_holds_are_undecodable() -> None:
    wide, narrow = record("R", a="long"), record("R", a="int")
    moments = record("R", a=long("timestamp-millis"))
    known = Known({1: (json.dumps(narrow),), 2: (json.dumps(moments),)})
    raw = framed(1, wide, {"a": 2**40})
    fine = framed(1, narrow, {"a": 1})
    assert read(narrow, known, fine, raw, fine) == [
        ({"a": 1}, None), (None, "undecodable"), ({"a": 1}, None),
    ]  # fmt: skip
    assert read(moments, known, framed(2, wide, {"a": 2**62})) == [(None, "undecodable")]


def decimal(kind: str, precision: Any, **more: Any) -> dict[str, Any]:
    return {"type": kind, "logicalType": "decimal", "precision": precision, **more}


FIXED = {"type": "fixed", "name": "F", "size": 2}
ENUM = {"type": "enum", "name": "E", "symbols": ["X"]}


@pytest.mark.parametrize(
    ("written", "reader", "value"),
    [
        (("int", "0"), "int", 5),
        (({"type": "double"}, 0), "double", 5.0),
        (({"type": "double", "connect.type": "float"}, "x"), "double", 5.0),
        (ENUM | {"default": "Y"}, ENUM, "X"),
        (FIXED | decimal("fixed", 30), FIXED, b"ab"),
        (decimal("bytes", "2"), "bytes", b"ab"),
        (decimal("bytes", 2, scale=9), "bytes", b"ab"),
        (decimal("string", 2), "string", "x"),
    ],
)
def test_what_does_not_matter_to_reading_is_no_reason(
    written: Any, reader: Any, value: Any
) -> None:
    """Registries of before took wrong defaults; a logical type that is none is to be ignored."""
    known, right = Known({7: (json.dumps(record("R", a=written)),)}), record("R", a=reader)
    assert read(right, known, framed(7, right, {"a": value})) == [({"a": value}, None)]


@pytest.mark.parametrize(
    ("kind", "default", "column"),
    [
        ("double", "Infinity", float("inf")),
        ("float", "-Infinity", float("-inf")),
        ({"type": "double"}, 0, 0.0),
        ({"type": "double", "connect.type": "float64"}, "Infinity", float("inf")),
        (["double", "null"], "Infinity", float("inf")),
    ],
)
def test_defaults_of_a_reader_that_are_no_number_in_json(
    kind: Any, default: Any, column: float
) -> None:
    new = record("R", b="int", a=(kind, default))
    assert through(record("R", b="int"), new, {"b": 1}) == {"a": column, "b": 1}


def test_ids_that_nobody_knows_are_told_all_at_once_and_asked_once() -> None:
    schema = record("R", a="int")
    known = Known({1: (json.dumps(schema),)})
    good, bad = framed(1, schema, {"a": 1}), [framed(n, schema, {"a": 1}) for n in (9, 2**32 - 1)]
    text = pinned([json.dumps(schema)], "it")
    batches = [pa.array([good, *bad, bad[0]], pa.binary()), pa.array([bad[1], good], pa.binary())]
    with pytest.raises(UnknownSchemas, match=r"test: does not know the schemas \[9, 4294967295\]"):
        list(decoded(iter(batches), text, known))
    assert sorted(known.asked) == [1, 9, 2**32 - 1]


def test_a_topic_whose_ids_are_random_is_not_asked_for_without_end() -> None:
    schema, known = record("R", a="int"), Known({})
    raw = [framed(n, schema, {"a": 1}) for n in range(20_000)]
    text = pinned([json.dumps(schema)], "it")
    with pytest.raises(ConfigurationError, match="records of flights name more than 1000") as many:
        list(decoded(iter([pa.array(raw, pa.binary())]), text, known, "flights"))
    assert not isinstance(many.value, UnknownSchemas), "it is not judged again"
    assert len(known.asked) < 5000


def test_large_batches_are_decoded_a_part_at_a_time() -> None:
    schema = record("R", a="int")
    known, raw = Known({7: (json.dumps(schema),)}), framed(7, schema, {"a": 1})
    text = pinned([json.dumps(schema)], "it")
    batches = [pa.array([raw] * 10_000, pa.binary()), pa.array([], pa.binary())]
    assert [len(part) for part in decoded(iter(batches), text, known)] == [4096, 4096, 1808, 0]


def test_schemas_are_asked_for_once() -> None:
    schema = record("R", a="int")
    known = Known({1: (json.dumps(schema),)})
    for _ in range(3):
        read(schema, known, framed(1, schema, {"a": 1}))
    assert known.asked == [1]
    assert writer_of.cache_info().maxsize == 5000


@given(st.binary(max_size=40))
def test_any_bytes_are_a_record_or_a_dead_letter(tail: bytes) -> None:
    schema = record(
        "R",
        a=["null", "string"],
        b={"type": "map", "values": {"type": "array", "items": "long"}},
        c=long("timestamp-millis"),
        d={"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2},
    )
    known = Known({1: (json.dumps(schema),)})
    ((row, why),) = read(schema, known, b"\x00\x00\x00\x00\x01" + tail)
    assert (row is None) == (why is not None)
