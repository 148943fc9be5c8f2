"""What is counted of a value without looking at it is never less than what it takes."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from state_lib.serdes import Struct
from state_lib.serdes.kinds import Kind
from state_lib.serdes.shown import to_json
from state_lib.spark.measures import SHOWN, STORED, growth
from tests.support.drawn import NUMBERS, kinds, values

EXTREMES: dict[str, list[Any]] = {
    "int64": [-(2**63), None],
    "float64": [-2.2250738585072014e-308, -1.2345678901234567e-5, 1e15, 1e16, None],
    "bool": [False, None],
    "utf8": ["", None],
    "bytes": [b"", None],
}


def stored(kind: Kind, value: Any) -> int:
    """Bytes within a struct of this alone, whose first one says whether it is null."""
    return len(Struct(it=kind).serialize({"it": value})) - 1


def shown(kind: Kind, value: Any) -> int:
    return len(orjson.dumps(to_json(kind, value)))


@given(data=st.data())
def test_numbers_and_structs_of_them_have_a_bound(data: st.DataObject) -> None:
    kind = data.draw(kinds(NUMBERS, rows=False))
    value = data.draw(values(kind))
    assert growth(kind) == 0
    assert STORED.fixed(kind) >= stored(kind, value)
    assert SHOWN.fixed(kind) >= shown(kind, value)


@given(data=st.data())
def test_rows_of_numbers_have_one_each(data: st.DataObject) -> None:
    of, by = data.draw(kinds(NUMBERS, rows=False)), data.draw(st.sampled_from(sorted(NUMBERS)))
    for kind in ({"array": of}, {"map": [by, of]}):
        value = data.draw(values(kind))
        count = len(value or ())
        assert STORED.fixed(kind) + count * STORED.row(kind) >= stored(kind, value)
        assert SHOWN.fixed(kind) + count * SHOWN.row(kind) >= shown(kind, value)
        assert growth(kind) * STORED.row(kind) >= SHOWN.row(kind)


@pytest.mark.parametrize("kind", EXTREMES)
def test_the_longest_and_nothing_are_counted(kind: str) -> None:
    for value in EXTREMES[kind]:
        assert STORED.fixed(kind) >= stored(kind, value)
        assert SHOWN.fixed(kind) >= shown(kind, value)


def test_bounds_are_no_wilder_than_they_must_be() -> None:
    """Or what fits would be a dead letter."""
    numbers: Kind = {"struct": [[f"n{i}", "int64"] for i in range(40)]}
    least = {f"n{i}": -(2**63) for i in range(40)}
    assert STORED.fixed(numbers) == stored(numbers, least)
    assert SHOWN.fixed(numbers) == shown(numbers, least) + 1, "a comma too many"
    assert STORED.row({"array": "int64"}) == 13
    assert SHOWN.row({"array": "int64"}) == 21
