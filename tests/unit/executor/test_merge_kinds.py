"""Merging values of every kind: the same at every cut of a stream."""

from __future__ import annotations

import datetime as dt
import math
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from state_lib.executor.merge import merge, rows_of
from state_lib.serdes import serde_from
from state_lib.serdes.kinds import EXACT, kind_from
from tests.support.merged import cuts, decoded, folded, stored, table, verb


@pytest.mark.parametrize(
    ("values", "least", "most"),
    [
        ([math.nan, 1.0, -math.inf], -math.inf, math.nan),
        ([math.nan, None, math.nan], math.nan, math.nan),
        ([None, math.inf, math.nan], math.inf, math.nan),
        ([0.0, -0.0], 0.0, 0.0),
        ([-0.0, None], 0.0, 0.0),
        ([None, None], None, None),
        ([-math.inf, None, 2.5], -math.inf, 2.5),
    ],
)
def test_nan_is_greatest_and_there_is_one_zero_at_every_cut(
    values: list[float | None], least: float | None, most: float | None
) -> None:
    v = verb(lo=("min", "float64"), hi=("max", "float64"))
    wanted = serde_from(v.store.value_serde).serialize({"lo": least, "hi": most})
    for order in (values, values[::-1]):
        for cut in cuts(order):
            assert folded(v, cut, lo="x", hi="x")[0][8:] == wanted, cut


DAY = dt.date(2013, 1, 31)
MOMENT = dt.datetime(2013, 1, 31, tzinfo=dt.UTC)
ORDERED: dict[str, list[Any]] = {
    "utf8": ["b", "", "ü", None, "a"],
    "bytes": [b"\xff", None, b"\0", b""],
    "bool": [True, None, False],
    "date": [DAY, dt.date(1960, 1, 1), None],
    "timestamp": [None, MOMENT, MOMENT + dt.timedelta(microseconds=1)],
    "decimal(38,2)": [Decimal("-0.01"), Decimal(10) ** 35 + Decimal("0.01"), None],
}


@pytest.mark.parametrize("kind", ORDERED)
def test_least_and_greatest_of_what_sorts_at_every_cut(kind: str) -> None:
    v, values = verb(lo=("min", kind), hi=("max", kind)), ORDERED[kind]
    some = [x for x in values if x is not None]
    serde = serde_from(v.store.value_serde)
    wanted = serde.serialize({"lo": min(some), "hi": max(some)})
    for order in (values, values[::-1]):
        for cut in cuts(order):
            assert folded(v, cut, lo="x", hi="x")[0][8:] == wanted, cut
    assert folded(v, [[None], [None, None]], lo="x", hi="x")[0][8:] == serde.serialize(
        {"lo": None, "hi": None}
    )


NESTED: dict[str, Any] = {
    "where": {"struct": [["dest", "utf8"], ["at", "timestamp"]]},
    "tags": {"array": "utf8"},
    "by": {"map": ["utf8", "int64"]},
    "price": "decimal(5,2)",
}


def test_last_keeps_what_has_parts() -> None:
    fields: dict[str, Any] = {name: ("last", kind) for name, kind in NESTED.items()}
    v = verb(n=None, **fields)
    old: dict[str, Any] = {
        "where": {"dest": "a", "at": None},
        "tags": ["x"],
        "by": [("k", 1)],
        "price": None,
    }
    new: dict[str, Any] = {"where": None, "tags": [None, "y"], "by": [], "price": Decimal("1.50")}
    hidden = {"_last_ts": 5, "_last_src": 0, "_last_offset": 1}
    given = [{"key": b"a", "ts": 9, "offset": 2}, {"key": b"b", "ts": 4, "offset": 2}]
    made = table(v, [{**row, "price": Decimal("1.50")} for row in given])
    kinds = {name: kind_from(kind).arrow_type for name, kind in NESTED.items()}
    order = made.column("l0").combine_chunks().field("order")
    parts = [order, *(pa.array([new[n], new[n]], kind) for n, kind in kinds.items())]
    names = ["order", *(f"a0_{name}" for name in kinds)]
    latest = pa.StructArray.from_arrays(parts, names)
    made = made.set_column(made.column_names.index("l0"), "l0", latest)
    rows = rows_of(made, 0, v)
    was = [{"n": 1, **hidden, **old}, {"n": 1, **hidden, **old}]
    first, second = decoded(v, merge(rows, stored(v, [*was]), v).values)
    assert {name: first[name] for name in NESTED} == new, "it is later"
    assert {name: second[name] for name in NESTED} == old
    first, _ = decoded(v, merge(rows, stored(v, [None, None]), v).values)
    assert {name: first[name] for name in NESTED} == new, "there was nothing"


DIGITS = 10**38 - 1


@settings(max_examples=100, deadline=None)
@given(
    st.lists(
        st.one_of(
            st.none(),
            st.integers(-DIGITS, DIGITS),
            st.sampled_from([DIGITS, -DIGITS, 1, -1, 2**96, -(2**96), 2**32, -(2**32)]),
        ),
        min_size=1,
        max_size=8,
    )
)
def test_sums_of_decimals_are_exact_and_wrap_in_the_same_way_at_every_cut(
    cents: list[int | None],
) -> None:
    v = verb(s=("sum", "decimal(38,2)"))
    values = [None if c is None else Decimal(c).scaleb(-2, EXACT) for c in cents]
    numbers = [c for c in cents if c is not None]
    exact = sum(numbers)
    residue = (exact + DIGITS) % (2 * DIGITS + 1) - DIGITS
    wanted = {"s": Decimal(residue).scaleb(-2, EXACT) if numbers else None}
    for cut in cuts(values):
        state, wrapped = folded(v, cut, s="x")
        assert serde_from(v.store.value_serde).deserialize(state[8:]) == wanted
        if len(cut) == len(values) and all(abs(sum(numbers[:i])) <= DIGITS for i in range(9)):
            assert wrapped == 0


def test_a_sum_of_decimals_that_wraps_is_counted() -> None:
    v = verb(s=("sum", "decimal(38,0)"))
    most, least = Decimal(DIGITS), Decimal(-DIGITS)
    assert folded(v, [[most], [None]], s="x")[1] == 0
    assert folded(v, [[most], [Decimal(1)]], s="x")[1] == 1
    assert folded(v, [[most, Decimal(1)]], s="x")[1] == 1, "within a batch, too"
    assert folded(v, [[least], [Decimal(-1)], [Decimal(1)]], s="x")[1] == 2


ROWS: dict[str, Any] = {
    "struct": [["n", "int64"], ["t", {"struct": [["u", "utf8"]]}], ["d", "date"]]
}
structs = st.fixed_dictionaries(
    {
        "n": st.none() | st.integers(0, 1),
        "t": st.none() | st.fixed_dictionaries({"u": st.none() | st.sampled_from(["", "ü", "z"])}),
        "d": st.none() | st.sampled_from([DAY, dt.date(1960, 1, 1)]),
    }
)


def order_of(value: Any) -> Any:
    """As Spark sorts: by field, null before all others."""
    if isinstance(value, dict):
        return (1, [order_of(value[name]) for name in ("n", "t", "d", "u") if name in value])
    return (0, 0) if value is None else (1, value.encode() if isinstance(value, str) else value)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.none() | structs, min_size=1, max_size=5))
def test_structs_sort_by_their_fields_at_every_cut(values: list[Any]) -> None:
    v, serde = verb(lo=("min", ROWS), hi=("max", ROWS)), serde_from({"struct": [["x", ROWS]]})
    some = sorted((x for x in values if x is not None), key=order_of)
    least, most = (some[0], some[-1]) if some else (None, None)
    for cut in cuts(values):
        found = serde_from(v.store.value_serde).deserialize(folded(v, cut, lo="x", hi="x")[0][8:])
        assert serde.serialize({"x": found["lo"]}) == serde.serialize({"x": least})
        assert serde.serialize({"x": found["hi"]}) == serde.serialize({"x": most})
