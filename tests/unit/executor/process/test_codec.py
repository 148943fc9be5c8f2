"""Rows of states and outputs: what is kept comes back, what has another type is refused."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import numpy as np
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import Row
from pyspark.sql import types as T  # noqa: N812

from state_lib.executor.kinds import kind_of
from state_lib.executor.process.codec import RowCodec
from state_lib.executor.process.results import Results
from state_lib.executor.process.values import fields_of, is_missing, shown
from state_lib.processing import Processor
from state_lib.serdes import serde_from
from state_lib.serdes.shown import from_json, to_json

NOON = dt.datetime(2013, 7, 1, 12, 30, 0, 123000, dt.UTC)
INNER = T.StructType([T.StructField("x", T.LongType()), T.StructField("d", T.DateType())])
KINDS: list[tuple[T.DataType, Any, Any]] = [
    (T.LongType(), -5, -5),
    (T.IntegerType(), 7, 7),
    (T.ShortType(), np.int16(7), 7),
    (T.DoubleType(), 1, 1.0),
    (T.FloatType(), 0.5, 0.5),
    (T.BooleanType(), True, True),
    (T.StringType(), "täglich", "täglich"),
    (T.BinaryType(), bytearray(b"\x00\xff"), b"\x00\xff"),
    (T.TimestampType(), NOON, NOON),
    (T.TimestampType(), NOON.replace(tzinfo=None), NOON),
    (T.TimestampNTZType(), NOON.replace(tzinfo=None), NOON.replace(tzinfo=None)),
    (T.DateType(), dt.date(1969, 12, 31), dt.date(1969, 12, 31)),
    (T.DecimalType(10, 2), Decimal("1.5"), Decimal("1.50")),
    (T.ArrayType(T.DoubleType()), [1.0, None], [1.0, None]),
    (T.MapType(T.IntegerType(), T.StringType()), {1: "a", 2: None}, {1: "a", 2: None}),
    (INNER, Row(d=dt.date(2013, 1, 1), x=1), Row(x=1, d=dt.date(2013, 1, 1))),
    (T.ArrayType(INNER), [(1, None)], [Row(x=1, d=None)]),
    (T.ArrayType(T.BinaryType()), [b"\xff"], [b"\xff"]),
]


def codec(type_: T.DataType, *, ttl: bool = False) -> RowCodec:
    return RowCodec(T.StructType([T.StructField("v", type_)]), ttl=ttl)


@pytest.mark.parametrize(("type_", "value", "back"), KINDS)
def test_what_is_kept_comes_back(type_: T.DataType, value: Any, back: Any) -> None:
    one = codec(type_)
    for given_value, wanted in ((value, back), (None, None)):
        raw = one.pack((given_value,))
        assert one.unpack(raw) == (wanted,)
        assert serde_from(one.serde).serialize(serde_from(one.serde).deserialize(raw)) == raw


@pytest.mark.parametrize("type_", [T.DoubleType(), T.FloatType()])
def test_fractions_that_are_not_finite_are_kept_wherever_they_stand(type_: T.DataType) -> None:
    infinite = float("inf")
    pair = T.StructType([T.StructField("x", type_)])
    holders: list[tuple[T.DataType, object]] = [
        (T.ArrayType(type_), [infinite, -infinite, 0.5, None]),
        (T.MapType(type_, type_), {infinite: -infinite}),
        (pair, Row(x=infinite)),
    ]
    for within, value in holders:
        one = codec(within)
        assert one.unpack(one.pack((value,))) == (value,)
    for holder, wrap in ((type_, lambda x: x), (T.ArrayType(type_), lambda x: [x])):
        one = codec(holder)
        (back,) = one.unpack(one.pack((wrap(float("nan")),)))
        assert repr(back) == repr(wrap(float("nan")))
    one = codec(T.MapType(type_, T.LongType()))
    (back,) = one.unpack(one.pack(({float("nan"): 1},)))
    assert [*map(repr, back)] == ["nan"]


@pytest.mark.parametrize(
    ("type_", "value"),
    [
        (T.LongType(), "1"),
        (T.LongType(), 1.0),
        (T.LongType(), True),
        (T.LongType(), 2**63),
        (T.IntegerType(), 2**31),
        (T.ByteType(), 128),
        (T.StringType(), 1),
        (T.BooleanType(), 1),
        (T.DoubleType(), "1"),
        (T.DoubleType(), 10**400),
        (T.FloatType(), 1e39),
        (T.FloatType(), 10**400),
        (T.ArrayType(T.FloatType()), [-1e39]),
        (T.DateType(), NOON),
        (T.TimestampType(), 1),
        (T.DecimalType(3, 1), Decimal("123.4")),
        (T.DecimalType(5, 1), Decimal("1.23")),
        (T.DecimalType(5, 1), Decimal("NaN")),
        (T.DecimalType(5, 1), Decimal("-Infinity")),
        (T.DecimalType(5, 1), Decimal("1E+100")),
        (T.ArrayType(T.LongType()), 1),
        (INNER, (1,)),
    ],
)
def test_another_type_is_refused(type_: T.DataType, value: Any) -> None:
    with pytest.raises((TypeError, ValueError)):
        codec(type_).pack((value,))


def test_a_row_has_the_fields_of_the_schema() -> None:
    names = ["a", "b"]
    assert fields_of(Row(b=2, a=1), names) == [1, 2]
    assert fields_of({"b": 2, "a": 1}, names) == [1, 2]
    assert fields_of((1, 2), names) == [1, 2]
    for wrong in (Row(a=1), {"a": 1, "c": 2}, (1,), 1, "ab"):
        with pytest.raises(TypeError):
            fields_of(wrong, names)


@given(st.integers(-(2**63), 2**63 - 1))
def test_when_it_expires_is_kept_beside_it(at: int) -> None:
    one = codec(T.StringType(), ttl=True)
    raw = one.pack(("a",), at)
    assert (one.unpack(raw), one.expires(raw)) == (("a",), at)
    assert codec(T.StringType()).expires(codec(T.StringType()).pack(("a",))) is None


DAY, EIGHT = dt.date(2013, 7, 1), T.DecimalType(10, 8)
EAST = NOON.replace(microsecond=1).astimezone(dt.timezone(dt.timedelta(hours=5)))
INFINITE = {float("nan"): 1, float("-inf"): 2, 0.5: 3}
OUTPUTS: list[tuple[T.DataType, Any, Any]] = [
    (T.LongType(), -5, -5),
    (T.ByteType(), np.int8(7), 7),
    (T.DoubleType(), 1, 1.0),
    (T.BooleanType(), True, True),
    (T.StringType(), "täglich", "täglich"),
    (T.VarcharType(9), "a", "a"),
    (T.BinaryType(), b"\x00", "00"),
    (T.BinaryType(), bytearray(b"\xfb\xff"), "fbff"),
    (T.TimestampType(), NOON, "2013-07-01T12:30:00.123Z"),
    (T.TimestampType(), EAST, "2013-07-01T12:30:00.000001Z"),
    (T.TimestampType(), NOON.replace(tzinfo=None), "2013-07-01T12:30:00.123Z"),
    (T.TimestampNTZType(), NOON.replace(tzinfo=None), "2013-07-01T12:30:00.123"),
    (T.TimestampNTZType(), EAST, "2013-07-01T12:30:00.000001"),
    (T.DateType(), DAY, "2013-07-01"),
    (T.DateType(), dt.date(1, 1, 1), "0001-01-01"),
    (T.DecimalType(5, 2), 1, "1.00"),
    (EIGHT, Decimal(0), "0.00000000"),
    (EIGHT, Decimal("1E-7"), "0.00000010"),
    (EIGHT, Decimal("-1E-8"), "-0.00000001"),
    (T.DecimalType(38, 0), Decimal(10**38 - 1), "9" * 38),
    (T.MapType(T.LongType(), INNER), {1: (2, None)}, {"1": {"x": 2, "d": None}}),
    (T.MapType(T.DateType(), T.BinaryType()), {DAY: b"a"}, {"2013-07-01": "61"}),
    (T.MapType(T.TimestampType(), T.LongType()), {EAST: 1}, {"2013-07-01T12:30:00.000001Z": 1}),
    (T.MapType(EIGHT, T.LongType()), {Decimal("1E-7"): 1}, {"0.00000010": 1}),
    (T.MapType(T.BooleanType(), T.LongType()), {True: None}, {"true": None}),
    (T.MapType(T.BinaryType(), T.StringType()), {b"\xff": "a"}, {"ff": "a"}),
    (T.MapType(T.DoubleType(), T.LongType()), INFINITE, {"NaN": 1, "-Infinity": 2, "0.5": 3}),
    (T.ArrayType(T.DateType()), [DAY, None], ["2013-07-01", None]),
    (T.ArrayType(T.DoubleType()), [float("nan"), float("inf"), 0.5], [None, None, 0.5]),
    (
        T.ArrayType(T.MapType(T.StringType(), T.ArrayType(INNER))),
        [{"a": [Row(x=1, d=DAY), None]}, None],
        [{"a": [{"x": 1, "d": "2013-07-01"}, None]}, None],
    ),
]


@pytest.mark.parametrize(("type_", "value", "json"), OUTPUTS)
def test_outputs_are_json(type_: T.DataType, value: Any, json: Any) -> None:
    assert orjson.loads(orjson.dumps(shown(type_)(value))) == json


@pytest.mark.parametrize(("type_", "value", "json"), OUTPUTS)
def test_outputs_say_what_was_kept_and_as_queries_do(
    type_: T.DataType, value: Any, json: Any
) -> None:
    """Another form would be another value to who reads both."""
    one, kind = codec(type_), kind_of(type_)
    (kept,) = one.unpack(one.pack((value,)))
    assert orjson.loads(orjson.dumps(shown(type_)(kept))) == json
    assert to_json(kind, from_json(kind, json)) == json


@pytest.mark.parametrize(
    "type_",
    [
        T.DayTimeIntervalType(),
        T.NullType(),
        T.VariantType(),
        T.ArrayType(T.DayTimeIntervalType()),
        T.MapType(INNER, T.LongType()),
        T.MapType(T.ArrayType(T.LongType()), T.LongType()),
    ],
    ids=str,
)
def test_a_type_without_a_form_in_json_is_refused(type_: T.DataType) -> None:
    with pytest.raises(TypeError, match=r"cannot be shown \(.+\): cast them"):
        shown(type_)


@pytest.mark.parametrize(
    ("type_", "value"),
    [
        (T.BinaryType(), "text"),
        (T.TimestampType(), 1),
        (T.DateType(), NOON),
        (T.DecimalType(3, 1), Decimal("123.4")),
        (T.MapType(T.LongType(), T.LongType()), {"1": 1}),
        (T.ArrayType(INNER), [(1,)]),
    ],
)
def test_of_outputs_another_type_is_refused(type_: T.DataType, value: Any) -> None:
    with pytest.raises((TypeError, ValueError)):
        shown(type_)(value)


def test_rows_are_records_of_outputs() -> None:
    schema = T.StructType(
        [
            T.StructField("b", T.BinaryType()),
            T.StructField("at", T.TimestampType()),
            T.StructField("p", EIGHT),
            T.StructField("by", T.MapType(T.IntegerType(), T.DateType())),
        ]
    )
    rows = T.StructType([T.StructField("k", T.StringType())]).json()
    made = Processor("p", b"", (), rows, schema.json(), "utf8", "none", event_time="at")
    row = Row(b=b"\xff", at=EAST, p=Decimal(0), by={1: DAY, 2: None})
    (said, none) = Results(made).records([row, (None, None, None, None)], 7)
    json = b'"at":"2013-07-01T12:30:00.000001Z","p":"0.00000000","by":{"1":"2013-07-01","2":null}'
    assert said == (b'{"b":"ff",' + json + b"}", int(EAST.timestamp()) * 1000)
    assert none == (b'{"b":null,"at":null,"p":null,"by":null}', 7)


def test_pandas_has_several_nulls() -> None:
    assert [is_missing(v) for v in (None, float("nan"), 0, "", np.float64("nan"))] == [
        True, True, False, False, True,
    ]  # fmt: skip
