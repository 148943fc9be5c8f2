"""What changes the digest of a processor's code. No JVM."""

from __future__ import annotations

from types import FunctionType
from typing import Any

import pytest

from state_lib.spark.process.meaning import meaning_of
from tests.support.processors import Doing

HOUR = 1


def helper(x: Any) -> Any:
    return x


def other(x: Any) -> Any:
    return x + 1


def plainly(_: Any, __: Any, rows: Any, ___: Any) -> Any:
    return iter([helper(rows), HOUR])


def in_a_generator(_: Any, __: Any, rows: Any, ___: Any) -> Any:
    return iter([max(helper(row) + HOUR for row in rows)])


def in_a_comprehension(_: Any, __: Any, rows: Any, ___: Any) -> Any:
    return iter([helper(row) + HOUR for row in rows])


def in_a_lambda(_: Any, __: Any, rows: Any, ___: Any) -> Any:
    return iter(sorted(rows, key=lambda row: helper(row) + HOUR))


def meaning(function: Any, **known: Any) -> str:
    """Of a processor that does this, where its module has other things under these names."""
    there = FunctionType(function.__code__, {**globals(), **known}, function.__name__)
    return meaning_of(Doing({}, there))


@pytest.mark.parametrize("function", [plainly, in_a_generator, in_a_comprehension, in_a_lambda])
def test_what_it_names_counts_wherever_it_names_it(function: Any) -> None:
    one = meaning(function)
    assert meaning(function) == one
    assert meaning(function, HOUR=2) != one
    assert meaning(function, helper=other) != one
    assert meaning(function, unrelated=2) == one


def test_a_variable_that_has_no_value_yet_is_nothing() -> None:
    def made() -> Any:
        def function(_: Any, __: Any, rows: Any, ___: Any) -> Any:
            return later(rows)

        found = meaning_of(Doing({}, function))
        later = iter
        return found

    assert made() == made()
