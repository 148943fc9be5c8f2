"""A function as executors call it, in this process: it never raises."""

from __future__ import annotations

import datetime as dt
import errno
import pickle
from asyncio import CancelledError
from collections.abc import Callable
from decimal import Decimal
from enum import Enum
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest
from pyspark import cloudpickle
from pyspark.sql import types as T  # noqa: N812
from pyspark.sql.conversion import LocalDataToArrowConversion
from pyspark.sql.pandas.types import to_arrow_type

from state_lib.driver.meaning import meaning_of
from state_lib.executor.caught import Caught, result_type
from state_lib.executor.process.arguments import without_zone
from state_lib.executor.process.failures import described
from state_lib.executor.process.values import checked, shown, to_field

NOON = dt.datetime(2026, 1, 31, 12, tzinfo=dt.UTC)


def caught(
    function: Callable[..., Any],
    gives: T.DataType,
    keywords: tuple[str, ...] = ("",),
) -> Caught:
    made = Caught(cloudpickle.dumps((function, gives)), keywords, gives, "step 1")
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


def test_a_number_too_large_for_a_float_is_an_error() -> None:
    large = caught(lambda x: x, T.FloatType())
    assert large(True, 0.5) == (True, 0.5, None)
    assert large(True, 1e39) == (False, None, "TypeError: 1e+39 is too large for a FLOAT")
    assert large(True, 10**400)[2] == "TypeError: a whole number of 1329 bits is no DOUBLE"


def test_arguments_are_given_by_name_where_they_were() -> None:
    minus = caught(lambda x, y: x - y, T.LongType(), keywords=("", "y"))
    assert minus(True, 5, 3) == (True, 2, None)


def test_what_cannot_be_made_here_is_no_rows_fault() -> None:
    made = Caught(b"no pickle", (), T.LongType(), "step 1")
    with pytest.raises(RuntimeError, match="step 1: its function cannot be made"):
        made(True)
    assert made(False) == (False, None, None)


def test_an_exception_whose_text_raises_has_a_name() -> None:
    class Odd(Exception):
        def __str__(self) -> str:
            raise ValueError

    assert described(Odd()) == "Odd"
    assert described(ValueError("two\nlines \ud800")) == "ValueError: two lines ?"


def test_times_lose_their_zone_wherever_they_stand() -> None:
    at, ntz, n = T.TimestampType(), T.TimestampNTZType(), T.LongType()
    assert without_zone(at) == ntz
    for kind in (ntz, n, T.DateType(), T.ArrayType(n), T.MapType(n, n)):
        assert without_zone(kind) is None
    assert without_zone(T.MapType(n, T.ArrayType(at))) == T.MapType(n, T.ArrayType(ntz))
    assert without_zone(T.MapType(at, n)) == T.MapType(ntz, n)
    pair = T.StructType([T.StructField("at", at), T.StructField("n", n, nullable=False)])
    made = T.StructType([T.StructField("at", ntz), T.StructField("n", n, nullable=False)])
    assert without_zone(pair) == made


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


class Panic(BaseException):
    """As libraries in Rust raise it."""


def raising(error: BaseException) -> Callable[[int], int]:
    def raises(_: int) -> int:
        raise error

    return raises


@pytest.mark.parametrize("error", [SystemExit(3), Panic("odd row"), CancelledError()])
def test_whatever_a_function_raises_is_its_rows(error: BaseException) -> None:
    fine, value, said = caught(raising(error), T.LongType())(True, 1)
    assert (fine, value) == (False, None)
    assert (said or "").startswith(type(error).__name__)


@pytest.mark.parametrize(
    "error", [MemoryError(), ModuleNotFoundError("no geo"), OSError(errno.EMFILE, "too many files")]
)
def test_what_a_machine_lacks_is_no_rows_fault(error: Exception) -> None:
    with pytest.raises(RuntimeError, match="step 1: its function could not be run in this worker"):
        caught(raising(error), T.LongType())(True, 1)


def test_who_interrupts_is_heard() -> None:
    with pytest.raises(KeyboardInterrupt):
        caught(raising(KeyboardInterrupt()), T.LongType())(True, 1)


def test_a_file_that_is_not_there_is_a_rows_fault() -> None:
    fine, _, said = caught(raising(FileNotFoundError("a.csv")), T.LongType())(True, 1)
    assert (fine, said) == (False, "FileNotFoundError: a.csv")


def test_an_exception_is_the_same_wherever_it_is_raised() -> None:
    error = ValueError("<Row object at 0x7f3a2c1d5e10> is none, nor is <b at 0x1F>")
    assert described(error) == "ValueError: <Row object> is none, nor is <b>"


class Colour(str, Enum):  # noqa: UP042 - StrEnum has a text of its own
    RED = "red"


class Odd(dt.datetime):
    def astimezone(self, _: Any = None) -> Any:
        raise ValueError("not this one")


AT = T.StructType([T.StructField("at", T.TimestampType())])
TIMES = {
    "plain": (T.TimestampType(), lambda at: at),
    "without-zone": (T.TimestampNTZType(), lambda at: at),
    "array": (T.ArrayType(T.TimestampType()), lambda at: [at]),
    "struct": (AT, lambda at: (at,)),
    "map": (T.MapType(T.StringType(), T.TimestampNTZType()), lambda at: {"a": at}),
    "key": (T.MapType(T.TimestampType(), T.LongType()), lambda at: {at: 1}),
    "day": (T.DateType(), lambda at: at if at is pd.NaT else at.date()),
}


@pytest.mark.parametrize(("kind", "around"), TIMES.values(), ids=TIMES.keys())
def test_what_pandas_has_for_no_time_is_refused(kind: T.DataType, around: Any) -> None:
    """Spark would raise on it behind the function, and end the batch."""
    fine, _, said = caught(lambda _: around(pd.NaT), kind)(True, 1)
    assert not fine
    assert (said or "").startswith("TypeError: ")
    fine, value, said = caught(lambda _: around(pd.Timestamp("2026-01-31 12:00")), kind)(True, 1)
    assert (fine, said) == (True, None)
    convert = LocalDataToArrowConversion._create_converter(kind)
    assert pa.array([convert(value)], to_arrow_type(kind, timezone="UTC")).null_count == 0


def test_values_of_classes_of_ones_own_are_plain_ones() -> None:
    moment = checked(T.TimestampType())(Odd(2026, 1, 31, 12, tzinfo=dt.UTC))
    assert (type(moment), moment) == (dt.datetime, NOON)
    for kind, wanted in (
        (T.StringType(), "red"),
        (T.VarcharType(9), "red"),
        (T.ArrayType(T.StringType()), ["red"]),
    ):
        given = [Colour.RED] if isinstance(wanted, list) else Colour.RED
        (value,) = [checked(kind)(given)]
        assert value == wanted
        text = value[0] if isinstance(value, list) else value
        assert type(text) is str
    by_colour = T.MapType(T.StringType(), T.LongType())
    (key,) = checked(by_colour)({Colour.RED: 1})
    assert (type(key), key) == (str, "red")
    assert shown(by_colour)({Colour.RED: 1}) == {"red": 1}


def test_two_keys_of_a_map_that_become_one_are_refused() -> None:
    kind, naive = T.MapType(T.TimestampType(), T.LongType()), NOON.replace(tzinfo=None)
    with pytest.raises(TypeError, match="keys that are one"):
        checked(kind)({NOON: 1, naive: 2})
    with pytest.raises(TypeError, match="keys that are one"):
        to_field(kind)({NOON: 1, naive: 2})


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
