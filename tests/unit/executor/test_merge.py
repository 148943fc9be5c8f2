"""Merging columns of a batch into stored values, against a plain dict."""

from __future__ import annotations

import datetime as dt
import math
import struct
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from state_lib.declaration import Field, Kept
from state_lib.executor.merge import merge, rows_of
from state_lib.keys import window_key
from state_lib.serdes import serde_from
from state_lib.serdes.kinds import EXACT, kind_from
from state_lib.specs import StoreSpec
from tests.support.declared import keeping

verb = keeping


def table(aggregation: Kept, rows: list[dict[str, Any]]) -> pa.Table:
    """Combined rows as `state_lib.spark.frames.combine` makes them, for verb 0."""
    columns: dict[str, pa.Array] = {
        "kind": pa.array([0] * len(rows), pa.int32()),
        "key": pa.array([r["key"] for r in rows], pa.binary()),
        "start": pa.array([r.get("start", 0) for r in rows], pa.int64()),
        "src": pa.array([r.get("src", 0) for r in rows], pa.int32()),
        "n": pa.array([r.get("n", 1) for r in rows], pa.int64()),
        "ts": pa.array([r.get("ts", 1) for r in rows], pa.int64()),
    }
    lasts = [n for n, f in aggregation.fields.items() if f.op == "last"]
    for name, field in aggregation.fields.items():
        if field.op != "last" and not field.of_rows:
            kind = kind_from(field.type).arrow_type
            values = [r.get(name) for r in rows]
            if (field.op, field.type) == ("sum", "int64"):
                high = [None if v is None else v >> 32 for v in values]
                columns[f"h0_{name}"] = pa.array(high, kind)
                values = [None if v is None else v & 0xFFFF_FFFF for v in values]
            columns[f"a0_{name}"] = pa.array(values, kind)
    if lasts:
        columns["l0"] = pa.array(
            [
                {
                    "order": {"ts": r.get("ts", 1), "col2": r.get("src", 0), "o0": r["offset"]},
                    **{f"a0_{n}": r.get(n) for n in lasts},
                }
                for r in rows
            ]
        )
    return pa.table(columns)


def stored(aggregation: Kept, values: list[dict[str, Any] | int | None]) -> pa.BinaryArray:
    serde = serde_from(aggregation.store.value_serde)
    return pa.array(
        [None if v is None else struct.pack(">q", 7) + serde.serialize(v) for v in values],
        pa.binary(),
    )


def decoded(aggregation: Kept, values: pa.BinaryArray) -> list[Any]:
    serde = serde_from(aggregation.store.value_serde)
    return [serde.deserialize(v) for v in values.to_pylist()]


def test_count_sum_min_max_with_nulls() -> None:
    v = verb(
        n=None,
        some=("count", "int64"),
        total=("sum", "int64"),
        lo=("min", "int64"),
        hi=("max", "int64"),
    )
    rows = rows_of(
        table(
            v,
            [
                {"key": b"b", "n": 2, "some": 1, "total": 5, "lo": 5, "hi": 5, "ts": 9},
                {"key": b"a", "n": 1, "some": 0, "total": None, "lo": None, "hi": None, "ts": 3},
            ],
        ),
        0,
        v,
    )
    assert rows.keys.to_pylist() == [b"a", b"b"]
    old = {"n": 10, "some": 4, "total": 100, "lo": 2, "hi": 50}
    merged = merge(rows, stored(v, [None, old]), v)
    assert decoded(v, merged.values) == [
        {"n": 1, "some": 0, "total": None, "lo": None, "hi": None},
        {"n": 12, "some": 5, "total": 105, "lo": 2, "hi": 50},
    ]
    assert merged.timestamps.to_pylist() == [3, 9]


def test_the_same_key_from_several_source_partitions_is_folded() -> None:
    v = verb(n=None, total=("sum", "int64"), lo=("min", "int64"), where=("last", "utf8"))
    rows = rows_of(
        table(
            v,
            [
                {
                    "key": b"k",
                    "src": 0,
                    "n": 2,
                    "total": 3,
                    "lo": 1,
                    "ts": 8,
                    "offset": 4,
                    "where": "old",
                },
                {
                    "key": b"k",
                    "src": 1,
                    "n": 5,
                    "total": None,
                    "lo": None,
                    "ts": 8,
                    "offset": 2,
                    "where": "new",
                },
                {
                    "key": b"j",
                    "src": 1,
                    "n": 1,
                    "total": 1,
                    "lo": 1,
                    "ts": 1,
                    "offset": 1,
                    "where": None,
                },
            ],
        ),
        0,
        v,
    )
    merged = merge(rows, stored(v, [None, None]), v)
    j, k = decoded(v, merged.values)
    assert (k["n"], k["total"], k["lo"], k["where"]) == (7, 3, 1, "new")
    assert (k["_last_ts"], k["_last_src"], k["_last_offset"]) == (8, 1, 2)
    assert (j["n"], j["where"]) == (1, None)


def test_last_keeps_the_stored_value_if_that_is_newer() -> None:
    v = verb(where=("last", "utf8"))
    one = {"key": b"k", "ts": 5, "offset": 9, "where": "batch"}
    rows = rows_of(table(v, [one]), 0, v)
    newer = {"_last_ts": 5, "_last_src": 1, "_last_offset": 0, "where": "store"}
    older = {**newer, "_last_src": 0, "_last_offset": 8}
    assert decoded(v, merge(rows, stored(v, [newer]), v).values)[0]["where"] == "store"
    assert decoded(v, merge(rows, stored(v, [older]), v).values)[0]["where"] == "batch"


def test_window_rows_get_composite_keys() -> None:
    spec = StoreSpec(
        "w", "window", value_serde="int64", window_size_ms=3_600_000, retention_ms=86_400_000
    )
    v = Kept(spec, "bytes", {"count": Field("count", "int64", of_rows=True)})
    rows = rows_of(table(v, [{"key": b"k", "start": 3_600_000}, {"key": b"k", "start": 0}]), 0, v)
    assert rows.keys.to_pylist() == [window_key(b"k", 0), window_key(b"k", 3_600_000)]


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.lists(
            st.tuples(
                st.sampled_from([b"a", b"b", b"c", b"longer key"]),
                st.integers(0, 3),
                st.one_of(st.none(), st.integers(-(2**40), 2**40)),
                st.integers(0, 50),
            ),
            max_size=12,
        ),
        max_size=5,
    )
)
def test_any_cut_of_a_stream_gives_the_same_state(
    batches: list[list[tuple[bytes, int, int | None, int]]],
) -> None:
    v = verb(n=None, total=("sum", "int64"), hi=("max", "int64"), seen=("last", "int64"))
    state: dict[bytes, bytes] = {}
    offset = 0
    records = []
    for batch in batches:
        rows = []
        for key, src, x, ts in batch:
            offset += 1
            records.append((key, src, x, ts, offset))
            rows.append(
                {
                    "key": key,
                    "src": src,
                    "n": 1,
                    "total": x,
                    "hi": x,
                    "seen": x,
                    "ts": ts,
                    "offset": offset,
                }
            )
        if not rows:
            continue
        folded = rows_of(table(v, rows), 0, v)
        before = pa.array([state.get(k) for k in folded.keys.to_pylist()], pa.binary())
        merged = merge(folded, before, v)
        for key, value, ts in zip(
            folded.keys.to_pylist(),
            merged.values.to_pylist(),
            merged.timestamps.to_pylist(),
            strict=True,
        ):
            state[key] = struct.pack(">q", ts) + value
    for key in {r[0] for r in records}:
        mine = [r for r in records if r[0] == key]
        xs = [r[2] for r in mine if r[2] is not None]
        last = max(mine, key=lambda r: (r[3], r[1], r[4]))
        value = serde_from(v.store.value_serde).deserialize(state[key][8:])
        assert value["n"] == len(mine)
        assert value["total"] == (sum(xs) if xs else None)
        assert value["hi"] == max(xs, default=None)
        assert value["seen"] == last[2]
        assert struct.unpack(">q", state[key][:8])[0] == max(r[3] for r in mine)


MOST, LEAST = 2**63 - 1, -(2**63)


def folded(aggregation: Kept, cut: list[list[Any]], **of: str) -> tuple[bytes, int]:
    """What is stored of one key after these batches of values, and how many sums wrapped."""
    state, wrapped = None, 0
    for values in cut:
        rows = [{"key": b"k", "src": i, **dict.fromkeys(of, v)} for i, v in enumerate(values)]
        merged = merge(
            rows_of(table(aggregation, rows), 0, aggregation), pa.array([state], pa.binary()),
            aggregation,
        )  # fmt: skip
        state = struct.pack(">q", 1) + merged.values[0].as_py()
        wrapped += sum(merged.wrapped.values())
    assert state is not None
    return state, wrapped


def cuts(values: list[Any]) -> list[list[list[Any]]]:
    """All in one batch, in two, row by row."""
    two = [[values[:i], values[i:]] for i in range(1, len(values))]
    return [[values], *two, [[v] for v in values]]


@settings(max_examples=100, deadline=None)
@given(st.lists(st.one_of(st.none(), st.integers(LEAST, MOST)), min_size=1, max_size=8))
def test_sums_wrap_in_the_same_way_at_every_cut(values: list[int | None]) -> None:
    v = verb(s=("sum", "int64"))
    numbers = [x for x in values if x is not None]
    exact = sum(numbers)
    wanted = {"s": (exact + 2**63) % 2**64 - 2**63 if numbers else None}
    for cut in cuts(values):
        state, wrapped = folded(v, cut, s="x")
        assert serde_from(v.store.value_serde).deserialize(state[8:]) == wanted
        if len(cut) == 1:
            assert wrapped == int(not LEAST <= exact <= MOST)


def test_a_sum_that_wraps_is_counted() -> None:
    v = verb(s=("sum", "int64"))
    assert folded(v, [[MOST, 0]], s="x")[1] == 0
    assert folded(v, [[MOST, 1]], s="x")[1] == 1
    assert folded(v, [[MOST], [1]], s="x")[1] == 1
    assert folded(v, [[LEAST], [-1]], s="x")[1] == 1
    assert folded(v, [[LEAST, MOST, 1]], s="x")[1] == 0
    assert folded(v, [[MOST], [None], [-MOST]], s="x")[1] == 0


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
