"""Combined rows of a batch, and what is stored of them."""

from __future__ import annotations

import struct
from typing import Any

import pyarrow as pa

from state_lib.declaration import Kept
from state_lib.executor.merge import merge, rows_of
from state_lib.serdes import serde_from
from state_lib.serdes.kinds import kind_from
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
