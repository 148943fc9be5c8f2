"""Merging columns of a batch into stored values, against a plain dict."""

from __future__ import annotations

import struct
from typing import Any

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from state_lib import Application, TimeWindows, agg
from state_lib.application import Aggregation
from state_lib.keys import window_key
from state_lib.serdes import serde_from
from state_lib.spark.merge import merge, rows_of


def verb(**fields: Any) -> Aggregation:
    app = Application("app", partitions=1)
    app.stream("t").group_by("key").aggregate("s", **fields)
    return app.aggregations[0]


def table(aggregation: Aggregation, rows: list[dict[str, Any]]) -> pa.Table:
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
        if field.op != "last" and not (field.op == "count" and field.expr is None):
            kind = pa.float64() if field.type == "float64" else pa.int64()
            columns[f"a0_{name}"] = pa.array([r.get(name) for r in rows], kind)
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


def stored(aggregation: Aggregation, values: list[dict[str, Any] | int | None]) -> pa.BinaryArray:
    serde = serde_from(aggregation.store.value_serde)
    return pa.array(
        [None if v is None else struct.pack(">q", 7) + serde.serialize(v) for v in values],
        pa.binary(),
    )


def decoded(aggregation: Aggregation, values: pa.BinaryArray) -> list[Any]:
    serde = serde_from(aggregation.store.value_serde)
    return [serde.deserialize(v) for v in values.to_pylist()]


def test_count_sum_min_max_with_nulls() -> None:
    v = verb(
        n=agg.count(), some=agg.count("x"), total=agg.sum("x"), lo=agg.min("x"), hi=agg.max("x")
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
    v = verb(n=agg.count(), total=agg.sum("x"), lo=agg.min("x"), where=agg.last("y"))
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
    v = verb(where=agg.last("y"))
    one = {"key": b"k", "ts": 5, "offset": 9, "where": "batch"}
    rows = rows_of(table(v, [one]), 0, v)
    newer = {"_last_ts": 5, "_last_src": 1, "_last_offset": 0, "where": "store"}
    older = {**newer, "_last_src": 0, "_last_offset": 8}
    assert decoded(v, merge(rows, stored(v, [newer]), v).values)[0]["where"] == "store"
    assert decoded(v, merge(rows, stored(v, [older]), v).values)[0]["where"] == "batch"


def test_window_rows_get_composite_keys() -> None:
    app = Application("app", partitions=1)
    app.stream("t").group_by("key").windowed_by(TimeWindows("1 hour")).count("w")
    v = app.aggregations[0]
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
    v = verb(n=agg.count(), total=agg.sum("x"), hi=agg.max("x"), seen=agg.last("x", "int64"))
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
