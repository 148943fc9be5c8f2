"""A function as executors call it, in this process: it never raises."""

from __future__ import annotations

import datetime as dt
import pickle
import time
from collections.abc import Callable, Iterator
from decimal import Decimal
from typing import Any

import pytest
from pyspark import cloudpickle
from pyspark.sql import Row
from pyspark.sql import types as T  # noqa: N812

from state_lib.spark.functions.caught import Caught, result_type
from state_lib.spark.process.arguments import in_utc
from state_lib.spark.process.failures import described
from state_lib.spark.process.meaning import meaning_of
from state_lib.spark.process.values import checked

NOON = dt.datetime(2026, 1, 31, 12, tzinfo=dt.UTC)


def caught(
    function: Callable[..., Any],
    gives: T.DataType,
    takes: tuple[T.DataType, ...] = (T.LongType(),),
    keywords: tuple[str, ...] = ("",),
) -> Caught:
    made = Caught(cloudpickle.dumps((function, gives)), takes, keywords, gives, "step 1")
    again: Caught = pickle.loads(cloudpickle.dumps(made))  # noqa: S301 - made here
    return again


def test_it_gives_a_value_an_error_or_nothing() -> None:
    half = caught(lambda x: 10 // x, T.LongType())
    assert half(True, 5) == (True, 2, None)
    assert half(True, 0) == (
        False, None, "ZeroDivisionError: integer division or modulo by zero",
    )  # fmt: skip
    assert half(False, 0) == (False, None, None)
    assert half(None, 0) == (False, None, None)  # type: ignore[arg-type]
    assert caught(lambda _: None, T.LongType())(True, 5) == (True, None, None)


def test_a_value_of_another_type_is_an_error() -> None:
    fine, value, error = caught(lambda x: f"{x}", T.LongType())(True, 5)
    assert (fine, value) == (False, None)
    assert error == "TypeError: '5' is no whole number of 64 bits"


def test_arguments_are_given_by_name_where_they_were() -> None:
    minus = caught(
        lambda x, y: x - y, T.LongType(), (T.LongType(), T.LongType()), keywords=("", "y")
    )
    assert minus(True, 5, 3) == (True, 2, None)


def test_what_cannot_be_made_here_is_no_rows_fault() -> None:
    made = Caught(b"no pickle", (), (), T.LongType(), "step 1")
    with pytest.raises(RuntimeError, match="step 1: its function cannot be made"):
        made(True)
    assert made(False) == (False, None, None)


def test_an_exception_whose_text_raises_has_a_name() -> None:
    class Odd(Exception):
        def __str__(self) -> str:
            raise ValueError

    assert described(Odd()) == "Odd"
    assert described(ValueError("two\nlines \ud800")) == "ValueError: two lines ?"


@pytest.fixture
def elsewhere(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "America/New_York")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.usefixtures("elsewhere")
def test_times_are_in_utc() -> None:
    given = NOON.astimezone().replace(tzinfo=None)
    assert given.hour == 7
    convert, naive = in_utc(T.TimestampType()), NOON.replace(tzinfo=None)
    assert convert is not None
    assert convert(given) == naive
    inner = T.StructType([T.StructField("at", T.TimestampType()), T.StructField("n", T.LongType())])
    nested = in_utc(T.MapType(T.StringType(), T.ArrayType(inner)))
    assert nested is not None
    row = Row("at", "n")
    assert nested({"a": [row(given, 1), None]}) == {"a": [row(naive, 1), None]}
    by_time = in_utc(T.MapType(T.TimestampType(), T.LongType()))
    assert by_time is not None
    assert by_time({given: 1}) == {naive: 1}
    for other in (T.TimestampNTZType(), T.ArrayType(T.LongType()), T.DateType()):
        assert in_utc(other) is None
    assert checked(T.TimestampType())(naive) == NOON


def test_values_are_what_spark_takes() -> None:
    inner = T.StructType([T.StructField("a", T.LongType()), T.StructField("b", T.FloatType())])
    check = checked(T.MapType(T.StringType(), T.ArrayType(inner)))
    assert check({"x": [(1, 2), {"b": None, "a": 3}, None]}) == {
        "x": [{"a": 1, "b": 2.0}, {"a": 3, "b": None}, None]
    }
    assert checked(T.DecimalType(4, 2))(Decimal("1.5")) == Decimal("1.50")
    assert checked(T.TimestampNTZType())(NOON.replace(tzinfo=None)).hour == 12
    for kind, wrong in (
        (T.TimestampNTZType(), NOON),
        (T.DateType(), NOON),
        (T.BinaryType(), "text"),
        (T.StringType(), 1),
        (inner, (1,)),
        (T.ArrayType(T.LongType()), {1}),
    ):
        with pytest.raises(TypeError):
            checked(kind)(wrong)
    for unknown in (T.DayTimeIntervalType(), T.VariantType(), T.NullType()):
        with pytest.raises(TypeError, match="cannot be checked"):
            checked(unknown)


def test_spark_is_told_of_three_fields() -> None:
    assert result_type(T.LongType()).simpleString() == (
        "struct<fine:boolean,value:bigint,error:string>"
    )


RATE = 2


def rated(x: int) -> int:
    return x * RATE


class Adding:
    def __init__(self, more: int) -> None:
        self.more = more

    def __call__(self, x: int) -> int:
        return x + self.more

    def method(self, x: int) -> int:
        return x - self.more


def test_meanings_tell_functions_apart() -> None:
    def around(more: int) -> Callable[[int], int]:
        return lambda x: x + more

    meanings = [
        meaning_of(one)
        for one in (
            rated, around(1), around(2), Adding(1), Adding(2), Adding(1).method, Adding(2).method,
            max, min, str.lower, str.upper, int, str, lambda x: sum(rated(y) for y in x),
        )
    ]  # fmt: skip
    assert len(set(meanings)) == len(meanings)
    assert meaning_of(around(1)) == meanings[1]
    assert meaning_of(None, max) != meaning_of(max, None)


def test_what_is_named_within_a_generator_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    def total(rows: list[int]) -> int:
        return sum(rated(x) + RATE for x in rows)

    before = meaning_of(total)
    monkeypatch.setitem(globals(), "RATE", 3)
    assert meaning_of(total) != before
