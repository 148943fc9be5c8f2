"""Merging columns of a batch into stored values, against a plain dict."""

from __future__ import annotations

import struct

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from state_lib.declaration import Field, Kept
from state_lib.executor.merge import merge, rows_of
from state_lib.keys import window_key
from state_lib.serdes import serde_from
from state_lib.specs import StoreSpec
from tests.support.merged import cuts, decoded, folded, stored, table, verb


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
