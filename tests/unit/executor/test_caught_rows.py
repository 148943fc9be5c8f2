"""A function of several rows as executors call it, in this process: it never raises."""

from __future__ import annotations

import errno
import pickle
from collections.abc import Callable, Iterable, Iterator
from math import ceil, log2
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark import cloudpickle
from pyspark.sql import types as T  # noqa: N812
from pyspark.sql.pandas.types import to_arrow_type

from state_lib.declaration import Call, CallKind, Expression
from state_lib.executor.caught import result_type
from state_lib.executor.caught_rows import CaughtRows

LONG = T.LongType()


def caught(
    function: Callable[..., Any],
    gives: T.DataType = LONG,
    kind: CallKind = "pandas",
    keywords: tuple[str, ...] = ("",),
) -> CaughtRows:
    made = CaughtRows(cloudpickle.dumps((function, gives)), keywords, gives, "step 1", kind)
    again: CaughtRows = pickle.loads(cloudpickle.dumps(made))  # noqa: S301 - made here
    return again


def usable(*rows: bool | None) -> Any:
    return pa.array(rows, pa.bool_())


def told(made: Any) -> list[tuple[bool, Any, str | None]]:
    """What stands in an array of results."""
    return [(one["fine"], one["value"], one["error"]) for one in made.to_pylist()]


def of(
    function: Callable[..., Any], *values: Any, **how: Any
) -> list[tuple[bool, Any, str | None]]:
    """What a function gives of some whole numbers."""
    return told(
        caught(function, **how)(usable(*[True] * len(values)), pa.array(values, pa.int64()))
    )


def strict(x: pd.Series) -> pd.Series:
    if (x < 0).any():
        raise ValueError(f"{x[x < 0].iloc[0]} is less than nothing")
    return x + 1


def test_a_row_on_which_it_fails_is_found_and_others_are_as_without_it() -> None:
    assert of(strict, 1, -2, 3, None, -5) == [
        (True, 2, None),
        (False, None, "ValueError: -2 is less than nothing"),
        (True, 4, None),
        (True, None, None),
        (False, None, "ValueError: -5 is less than nothing"),
    ]


@pytest.mark.parametrize("kind", ["pandas", "arrow"])
def test_a_number_too_large_for_a_float_is_its_row_alone(kind: CallKind) -> None:
    def large(x: Any) -> Any:
        return x * 1e38 if kind == "pandas" else pc.multiply(x, 1e38)

    first, second, third = of(large, 1, 10, 2, gives=T.FloatType(), kind=kind)
    assert (first[0], third[0]) == (True, True)
    assert second == (False, None, "TypeError: a value is too large for float")


def test_rows_that_are_not_usable_are_not_given_to_it() -> None:
    made = caught(strict)(usable(True, False, None, True), pa.array([1, -2, -3, 4]))
    nothing = (False, None, None)
    assert told(made) == [(True, 2, None), nothing, nothing, (True, 5, None)]
    assert made.type == to_arrow_type(result_type(LONG), timezone="UTC")


def test_without_a_row_it_is_not_called() -> None:
    made = caught(lambda _: 1 / 0)
    assert told(made(usable(False, None), pa.array([1, 2]))) == [(False, None, None)] * 2
    assert told(made(usable(), pa.array([], pa.int64()))) == []


CALLS: list[int] = []
FAILING: set[int] = set()


def counted(rows: Any) -> Any:
    CALLS.append(len(rows))
    if FAILING & set(rows.to_pylist()):
        raise ValueError("one of them")
    return pc.multiply(rows, 10)


@given(st.lists(st.tuples(st.booleans(), st.booleans()), max_size=70))
def test_halving_finds_exactly_the_rows_that_fail(rows: list[tuple[bool, bool]]) -> None:
    FAILING.clear()
    FAILING.update(row for row, (_, fails) in enumerate(rows) if fails)
    CALLS.clear()
    numbers = pa.array(range(len(rows)), pa.int64())
    made = caught(counted, kind="arrow")(usable(*(use for use, _ in rows)), numbers)
    for row, ((use, fails), result) in enumerate(zip(rows, told(made), strict=True)):
        fine = use and not fails
        error = "ValueError: one of them" if use and fails else None
        assert result == (fine, row * 10 if fine else None, error)
    many, failed = sum(use for use, _ in rows), sum(use and fails for use, fails in rows)
    most = min(2 * many - 1, 1 + 2 * failed * ceil(log2(many))) if many else 0
    assert len(CALLS) <= most


def test_a_failure_of_many_rows_and_of_no_single_one_is_none() -> None:
    def few(x: pd.Series) -> pd.Series:
        if len(x) > 2:
            raise ValueError("too many")
        return x

    assert of(few, 1, 2, 3, 4, 5) == [(True, x, None) for x in (1, 2, 3, 4, 5)]


def test_another_number_of_results_is_told_of_the_rows_that_make_it() -> None:
    assert of(lambda x: x.dropna(), 1, None, 3) == [
        (True, 1, None),
        (False, None, "OtherCount: it gave 0 values for 1 rows"),
        (True, 3, None),
    ]
    said = "TypeError: it gave a float, and is to give a pandas.Series"
    assert of(lambda x: float(x.sum()), 1, 3) == [(False, None, said)] * 2


def test_arguments_are_given_by_name_where_they_were() -> None:
    for kind in ("pandas", "arrow"):
        minus = caught(lambda x, y: pc.subtract(x, y) if kind == "arrow" else x - y,  # noqa: B023
                       kind=kind, keywords=("", "y"))  # fmt: skip
        assert told(minus(usable(True), pa.array([5]), pa.array([3]))) == [(True, 2, None)]


def test_an_iterator_has_one_batch_and_gives_one() -> None:
    def double(batches: Iterable[Any]) -> Iterator[Any]:
        for one in batches:
            yield one + one

    def sums(batches: Iterable[Any]) -> Iterator[Any]:
        for x, y in batches:
            yield pc.add(x, y)

    assert of(double, 1, None, kind="pandas-iter") == [(True, 2, None), (True, None, None)]
    added = caught(sums, kind="arrow-iter", keywords=("", ""))
    assert told(added(usable(True), pa.array([1]), pa.array([2]))) == [(True, 3, None)]


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (lambda _: iter(()), "TypeError: it gave no result for one batch"),
        (lambda batches: [*batches] * 2, "TypeError: it gave several results for one batch"),
        (lambda _: 5, "TypeError: 'int' object is not iterable"),
        (lambda batches: next(next(batches)), "TypeError: "),
        (lambda _: next(iter(())), "StopIteration"),
    ],
)
def test_an_iterator_that_gives_another_number_fails(function: Any, said: str) -> None:
    for kind in ("pandas-iter", "arrow-iter"):
        for fine, value, error in of(function, 1, 2, kind=kind):
            assert (fine, value) == (False, None)
            assert (error or "").startswith(said)


class Panic(BaseException):
    """As libraries in Rust raise it."""


def raising(error: BaseException) -> Callable[[Any], Any]:
    def raises(x: Any) -> Any:
        if 1 in x.to_pylist():
            raise error
        return x

    return raises


@pytest.mark.parametrize("error", [SystemExit(3), Panic("odd row"), StopIteration("a")])
def test_whatever_a_function_raises_is_its_rows(error: BaseException) -> None:
    (_, _, said), other = of(raising(error), 1, 2, kind="arrow")
    assert (said or "").startswith(type(error).__name__)
    assert other == (True, 2, None)


@pytest.mark.parametrize(
    "error", [MemoryError(), ModuleNotFoundError("no geo"), OSError(errno.EMFILE, "too many files")]
)
def test_what_a_machine_lacks_is_no_rows_fault(error: Exception) -> None:
    with pytest.raises(RuntimeError, match="step 1: its function could not be run in this worker"):
        of(raising(error), 1, 2, kind="arrow")


def test_who_interrupts_is_heard() -> None:
    with pytest.raises(KeyboardInterrupt):
        of(raising(KeyboardInterrupt()), 1, 2, kind="arrow")


def test_what_cannot_be_made_here_is_no_rows_fault() -> None:
    made = CaughtRows(b"no pickle", ("",), LONG, "step 1", "pandas")
    with pytest.raises(RuntimeError, match="step 1: its function cannot be made"):
        made(usable(True), pa.array([1]))
    assert told(made(usable(False), pa.array([1]))) == [(False, None, None)]


def test_what_it_is_given_at_a_time_is_meant_and_of_single_rows_as_before() -> None:
    said = ["half", "__hf_call0", "c0de", "bigint", [["", Expression("x").meaning]]]
    for kind in ("pandas", "pandas-iter", "arrow", "arrow-iter"):
        call = Call("half", "__hf_call0", 0, "c0de", "bigint", (Expression("x"),), ("",), kind)
        assert call.meaning == [*said, kind]
    call = Call("half", "__hf_call0", 0, "c0de", "bigint", (Expression("x"),), ("",))
    assert call.meaning == said


def test_one_value_for_many_rows_is_no_function_of_rows() -> None:
    said = (False, None, "OtherCount: it gave 1 values for 3 rows")
    assert of(lambda x: pd.Series([x.mean()]), 1, 2, 3, gives=T.DoubleType()) == [said] * 3
    assert [fine for fine, _, _ in of(lambda x: x.dropna(), 1, None, 3)] == [True, False, True]


ROOM = np.empty(8)


def into_the_same_room(x: Any) -> Any:
    rows = np.asarray(x, dtype=float)
    if (rows < 0).any():
        raise ValueError("less than nothing")
    made = ROOM[: len(rows)]
    np.multiply(rows, 10, out=made)
    return pd.Series(made) if isinstance(x, pd.Series) else pa.array(made)


@pytest.mark.parametrize("kind", ["pandas", "arrow"])
def test_results_are_copied_before_the_next_call(kind: CallKind) -> None:
    rows = [1.0, 2.0, 3.0, -4.0, 5.0, 6.0]
    made = caught(into_the_same_room, T.DoubleType(), kind)(usable(*[True] * 6), pa.array(rows))
    assert made.field("value").to_pylist() == [10, 20, 30, None, 50, 60]
