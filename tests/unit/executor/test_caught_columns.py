"""What functions of several rows are given and may give: Series, DataFrames, Arrow's arrays."""

from __future__ import annotations

import datetime as dt
import pickle
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark import cloudpickle
from pyspark.sql import types as T  # noqa: N812
from pyspark.sql.pandas.types import to_arrow_type

from state_lib.declaration import CallKind
from state_lib.executor.caught import Caught
from state_lib.executor.caught_pandas import series
from state_lib.executor.caught_rows import CaughtRows

NOON = dt.datetime(2026, 1, 31, 12, tzinfo=dt.UTC)
EPOCH, MICRO = dt.datetime(1970, 1, 1, tzinfo=dt.UTC), dt.timedelta(microseconds=1)
NAIVE = NOON.replace(tzinfo=None)
ZONED = pa.timestamp("us", "UTC")
LONG, DOUBLE, TEXT, AT, NTZ = (
    T.LongType(), T.DoubleType(), T.StringType(), T.TimestampType(), T.TimestampNTZType(),
)  # fmt: skip
PAIR = T.StructType([T.StructField("a", LONG, nullable=False), T.StructField("at", AT)])


class Giving:
    """A function that gives always the same."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def __call__(self, _: Any) -> Any:
        return self.value


def given_back(result: Any, gives: T.DataType, kind: CallKind) -> tuple[list[Any], list[Any]]:
    """Values and errors of rows for which a function gives ``result``."""
    command = cloudpickle.dumps((Giving(result), gives))
    made = CaughtRows(command, ("",), gives, "step 1", kind)
    many = len(result)
    rows = made(pa.array([True] * many), pa.array(range(many))).to_pylist()
    return [row["value"] for row in rows], [row["error"] for row in rows]


NAN, INFINITE, DAY = float("nan"), float("inf"), dt.date(2026, 1, 31)
WHOLE, ZEROS = pd.Series([0, 1], dtype="Int64"), pd.Series([0, 2], dtype="Int64")

TAKEN: dict[str, tuple[Any, T.DataType, list[Any]]] = {
    "whole": (pd.Series([1, 2]), LONG, [1, 2]),
    "whole-with-nulls": (pd.Series([1, None], dtype="Int64"), LONG, [1, None]),
    "whole-in-arrow": (pd.Series([1, None], dtype="int64[pyarrow]"), LONG, [1, None]),
    "whole-narrower": (pd.Series([1, 2]), T.ByteType(), [1, 2]),
    "no-number-of-whole-ones": (WHOLE / ZEROS, DOUBLE, [None, 0.5]),
    "no-number-for-whole": (WHOLE * 2 / ZEROS, LONG, [None, 1]),
    "categories-with-nulls": (pd.Series([1, None]).astype("category"), LONG, [1, None]),
    "fractions-that-are-whole": (pd.Series([1.0, NAN]), LONG, [1, None]),
    "fractions": (pd.Series([1.5, NAN]), DOUBLE, [1.5, None]),
    "whole-for-fractions": (pd.Series([1, 2]), T.FloatType(), [1.0, 2.0]),
    "rounded": (pd.Series([0.1]), T.FloatType(), [float(np.float32(0.1))]),
    "whole-for-decimals": (pd.Series([1, 2]), T.DecimalType(4, 2), [Decimal("1.00"), Decimal(2)]),
    "decimals": (pd.Series([Decimal("1.5"), None]), T.DecimalType(4, 2), [Decimal("1.5"), None]),
    "truth": (pd.Series([True, None]), T.BooleanType(), [True, None]),
    "texts": (pd.Series(["a", None, NAN]), TEXT, ["a", None, None]),
    "texts-of-pandas": (pd.Series(["a", None], dtype="string"), TEXT, ["a", None]),
    "texts-in-arrow": (pd.Series(["a", None], dtype="string[pyarrow]"), TEXT, ["a", None]),
    "categories": (pd.Series(["a", "b", "a"], dtype="category"), TEXT, ["a", "b", "a"]),
    "times": (pd.Series([NAIVE, None]), AT, [NOON, None]),
    "times-elsewhere": (pd.Series([NOON]).dt.tz_convert("Asia/Tokyo"), AT, [NOON]),
    "times-without-zone": (pd.Series([NAIVE, pd.NaT]), NTZ, [NAIVE, None]),
    "times-in-parts": (pd.Series([pd.Timestamp(-1500)]), AT, [
        dt.datetime(1969, 12, 31, 23, 59, 59, 999998, tzinfo=dt.UTC),
    ]),
    "days": (pd.Series([DAY, None]), T.DateType(), [DAY, None]),
    "lists": (
        pd.Series([[1, None], np.array([2]), None]), T.ArrayType(LONG), [[1, None], [2], None],
    ),
    "maps": (pd.Series([{"a": 1}, None]), T.MapType(TEXT, LONG), [[("a", 1)], None]),
    "frame": (
        pd.DataFrame({"at": [NAIVE, None], "a": [1, 2]}), PAIR,
        [{"a": 1, "at": NOON}, {"a": 2, "at": None}],
    ),
    "frame-by-place": (pd.DataFrame([[1, NAIVE]]), PAIR, [{"a": 1, "at": NOON}]),
    "frame-within": (
        pd.DataFrame({"s": [{"a": 1, "at": NAIVE}, (2, None)]}),
        T.StructType([T.StructField("s", PAIR)]),
        [{"s": {"a": 1, "at": NOON}}, {"s": {"a": 2, "at": None}}],
    ),
}  # fmt: skip


@pytest.mark.parametrize(("result", "gives", "wanted"), TAKEN.values(), ids=TAKEN.keys())
def test_what_of_pandas_is_taken(result: Any, gives: T.DataType, wanted: list[Any]) -> None:
    assert given_back(result, gives, "pandas") == (wanted, [None] * len(wanted))


REFUSED: dict[str, tuple[Any, T.DataType, str]] = {
    "text-for-whole": (pd.Series(["1"]), LONG, "TypeError: '1' is no whole number"),
    "whole-for-text": (pd.Series([1]), TEXT, "TypeError: 1 is of type int"),
    "truth-for-whole": (pd.Series([True]), LONG, "TypeError: True is no whole number"),
    "part-for-whole": (pd.Series([1.5]), LONG, "ArrowInvalid: Float value 1.5"),
    "too-large": (pd.Series([300]), T.ByteType(), "ArrowInvalid: Integer value 300"),
    "too-large-for-float": (pd.Series([1e39]), T.FloatType(), "TypeError: a value is too large"),
    "rounded-decimal": (pd.Series([Decimal("1.555")]), T.DecimalType(4, 2), "TypeError: Decimal("),
    "fraction-for-decimal": (pd.Series([1.5]), T.DecimalType(4, 2), "TypeError: 1.5 is of type"),
    "time-for-day": (pd.Series([NAIVE]), T.DateType(), "TypeError: Timestamp("),
    "zone-for-none": (pd.Series([NOON]), NTZ, "TypeError: it gave times in UTC"),
    "lone-surrogate": (pd.Series(["\ud800"]), TEXT, "UnicodeEncodeError: "),
    "no-time-within": (pd.Series([[pd.NaT]]), T.ArrayType(AT), "TypeError: NaT is no time"),
    "series-for-struct": (pd.Series([(1, None)]), PAIR, "TypeError: it gave a Series"),
    "frame-for-whole": (pd.DataFrame({"a": [1]}), LONG, "TypeError: it gave a DataFrame"),
    "array-for-series": (np.array([1]), LONG, "TypeError: it gave a ndarray"),
    "arrow-for-series": (pa.array([1]), LONG, "TypeError: it gave a Int64Array"),
    "other-columns": (pd.DataFrame({"a": [1], "b": [1]}), PAIR, "TypeError: it gave columns ['a'"),
    "fewer-columns": (pd.DataFrame([[1]]), PAIR, "TypeError: it gave 1 columns"),
    "periods": (pd.Series(pd.period_range("2026", periods=1)), LONG, "TypeError: "),
    "complex": (pd.Series([1j]), DOUBLE, "ArrowNotImplementedError: "),
}


@pytest.mark.parametrize(("result", "gives", "said"), REFUSED.values(), ids=REFUSED.keys())
def test_what_of_pandas_is_refused(result: Any, gives: T.DataType, said: str) -> None:
    values, (error,) = given_back(result, gives, "pandas")
    assert values == [None]
    assert error.startswith(said)


ARROW_TAKEN: dict[str, tuple[Any, T.DataType, list[Any]]] = {
    "whole": (pa.array([1, None], pa.int8()), LONG, [1, None]),
    "fractions": (pa.array([1.5, NAN, None]), T.FloatType(), [1.5, NAN, None]),
    "infinite": (pa.array([-INFINITE, None]), T.FloatType(), [-INFINITE, None]),
    "whole-for-fractions": (pa.array([1]), DOUBLE, [1.0]),
    "whole-for-decimals": (pa.array([1]), T.DecimalType(4, 2), [Decimal("1.00")]),
    "decimals": (pa.array([Decimal("1.500")]), T.DecimalType(4, 2), [Decimal("1.50")]),
    "texts": (pa.array(["a", None], pa.large_string()), TEXT, ["a", None]),
    "words": (pa.array(["a", None, "a"]).dictionary_encode(), TEXT, ["a", None, "a"]),
    "bytes": (pa.array([b"ab"], pa.binary(2)), T.BinaryType(), [b"ab"]),
    "nothing": (pa.nulls(2), PAIR, [None, None]),
    "times": (pa.array([NAIVE], pa.timestamp("s")), AT, [NOON]),
    "times-elsewhere": (pa.array([NOON], pa.timestamp("ns", "Asia/Tokyo")), AT, [NOON]),
    "times-without-zone": (pa.array([NAIVE], pa.timestamp("ms")), NTZ, [NAIVE]),
    "days": (pa.array([DAY], pa.date64()), T.DateType(), [DAY]),
    "lists": (pa.array([[1, None], None]), T.ArrayType(LONG), [[1, None], None]),
    "wide-lists": (pa.array([[1]], pa.large_list(pa.int8())), T.ArrayType(LONG), [[1]]),
    "maps": (
        pa.array([[("a", 1)], None], pa.map_(pa.string(), pa.int8())), T.MapType(TEXT, LONG),
        [[("a", 1)], None],
    ),
    "structs": (
        pa.array([{"a": 1, "at": NOON}, None], pa.struct([("a", pa.int64()), ("at", ZONED)])), PAIR,
        [{"a": 1, "at": NOON}, None],
    ),
    "other-structs": (
        pa.array([{"at": NOON, "a": 1}], pa.struct([("at", ZONED), ("a", pa.int8())])), PAIR,
        [{"a": 1, "at": NOON}],
    ),
}  # fmt: skip


@pytest.mark.parametrize(
    ("result", "gives", "wanted"), ARROW_TAKEN.values(), ids=ARROW_TAKEN.keys()
)
def test_what_of_arrow_is_taken(result: Any, gives: T.DataType, wanted: list[Any]) -> None:
    values, errors = given_back(result, gives, "arrow")
    assert repr(values).replace("zoneinfo.ZoneInfo(key='UTC')", "datetime.timezone.utc") == repr(
        wanted
    )
    assert errors == [None] * len(wanted)


TWICE = pa.MapArray.from_arrays([0, 2], pa.array(["a", "a"]), pa.array([1, 2]))
ARROW_REFUSED: dict[str, tuple[Any, T.DataType, str]] = {
    "text-for-whole": (pa.array(["1"]), LONG, "TypeError: '1' is no whole number"),
    "whole-for-text": (pa.array([1]), TEXT, "TypeError: 1 is of type int"),
    "truth-for-whole": (pa.array([True]), LONG, "TypeError: True is no whole number"),
    "fraction-for-whole": (pa.array([1.0]), LONG, "TypeError: 1.0 is no whole number"),
    "too-large": (pa.array([300]), T.ByteType(), "ArrowInvalid: Integer value 300"),
    "too-large-for-float": (pa.array([1e39]), T.FloatType(), "TypeError: a value is too large"),
    "too-large-within": (
        pa.array([[1e39]]),
        T.ArrayType(T.FloatType()),
        "TypeError: 1e+39 is too large for a FLOAT",
    ),
    "rounded-decimal": (pa.array([Decimal("1.555")]), T.DecimalType(4, 2), "ArrowInvalid: "),
    "time-for-day": (pa.array([NAIVE]), T.DateType(), "TypeError: datetime.datetime"),
    "zone-for-none": (pa.array([NOON], ZONED), NTZ, "TypeError: it gave times in UTC"),
    "text-within": (pa.array([["1"]]), T.ArrayType(LONG), "TypeError: '1' is no whole number"),
    "other-fields": (pa.array([{"a": 1}]), PAIR, "TypeError: a row has fields ['a']"),
    "one-key-twice": (TWICE, T.MapType(TEXT, LONG), "KeyError: "),
    "no-utf-8": (pa.array([b"\xff"]).view(pa.string()), TEXT, "ArrowInvalid: Invalid UTF8"),
    "chunks": (pa.chunked_array([[1]]), LONG, "TypeError: it gave a ChunkedArray"),
    "series": (pd.Series([1]), LONG, "TypeError: it gave a Series"),
}


@pytest.mark.parametrize(
    ("result", "gives", "said"), ARROW_REFUSED.values(), ids=ARROW_REFUSED.keys()
)
def test_what_of_arrow_is_refused(result: Any, gives: T.DataType, said: str) -> None:
    values, (error,) = given_back(result, gives, "arrow")
    assert values == [None]
    assert error.startswith(said)


ANY: list[tuple[T.DataType, Any]] = [
    (LONG, st.integers(-(2**63), 2**63 - 1)),
    (DOUBLE, st.floats(allow_nan=False)),
    (TEXT, st.text()),
    (T.BooleanType(), st.booleans()),
    (T.BinaryType(), st.binary()),
    (T.DateType(), st.dates()),
    (AT, st.integers(-(2**62) // 1000, 2**62 // 1000).map(lambda micros: EPOCH + micros * MICRO)),
    (T.ArrayType(LONG), st.lists(st.integers(0, 9) | st.none())),
    (T.MapType(TEXT, DOUBLE), st.dictionaries(st.text(), st.floats(allow_nan=False))),
]


@pytest.mark.parametrize(("kind", "values"), ANY, ids=[kind.simpleString() for kind, _ in ANY])
@given(data=st.data())
def test_what_it_is_given_it_may_give_back(kind: T.DataType, values: Any, data: Any) -> None:
    rows = data.draw(st.lists(values | st.none(), max_size=8))
    command = cloudpickle.dumps((lambda x: x, kind))
    one = Caught(command, ("",), kind, "step 1")
    for how in ("pandas", "arrow"):
        made = CaughtRows(command, ("",), kind, "step 1", how)
        wanted = made(pa.array([True] * len(rows), pa.bool_()), made_of(kind, rows)).field("value")
        assert wanted.equals(made_of(kind, [one(True, row)[1] for row in rows])), how


def made_of(kind: T.DataType, rows: list[Any]) -> Any:
    return pa.array(rows, to_arrow_type(kind, timezone="UTC"))


def test_what_a_series_is_does_not_depend_on_other_rows() -> None:
    """PySpark makes fractions of whole numbers where one of them is null."""
    for large in (2**60 + 1, -(2**53) - 1):
        for rows in ([1, large], [None, large]):
            pair = pa.array([{"a": row, "b": "x"} for row in rows])
            whole, frame = series([pa.array(rows), pair])
            assert whole.dtype == frame["a"].dtype == "Int64"
            assert whole[1] == frame["a"][1] == large


def test_structs_are_frames_and_times_are_in_utc() -> None:
    kind = pa.struct([("a", pa.int64()), ("at", ZONED)])
    frame, at, lists = series(
        [
            pa.array([{"a": 1, "at": NOON}, None], kind),
            pa.array([NOON, None], ZONED),
            pa.array([[1, 2], None]),
        ]
    )
    assert list(frame.columns) == ["a", "at"]
    assert frame.iloc[0].tolist() == [1, pd.Timestamp(NAIVE)]
    assert frame.isna().iloc[1].all()
    assert at.tolist() == [pd.Timestamp(NAIVE), pd.NaT]
    assert lists[0].tolist() == [1, 2]


def test_a_time_that_pandas_has_not_fails_alone() -> None:
    late = dt.datetime(3000, 1, 1, tzinfo=dt.UTC)
    command = cloudpickle.dumps((lambda x: x, AT))
    made: CaughtRows = pickle.loads(  # noqa: S301 - made here
        cloudpickle.dumps(CaughtRows(command, ("",), AT, "step 1", "pandas"))
    )
    given_, other = made(pa.array([True, True]), pa.array([late, NOON], ZONED)).to_pylist()
    assert given_["error"].startswith("ArrowInvalid: Casting from timestamp[us] to timestamp[ns]")
    assert (other["value"], other["error"]) == (NOON, None)
