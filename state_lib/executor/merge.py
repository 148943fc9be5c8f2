"""Merges a batch's combined rows of one verb into its stored values, column by column."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from state_lib.declaration import ORDER_FIELDS, Kept
from state_lib.executor import decimals
from state_lib.keys import split_timestamps, window_keys
from state_lib.serdes import Serde, serde_from
from state_lib.serdes.arrays import shaped
from state_lib.serdes.kinds import kind_from

Ints = npt.NDArray[np.int64]
_INT64 = np.iinfo(np.int64)
_LOW = 0xFFFF_FFFF
NOTHING = -(2**62)
"""Null in columns of times: less than every event time."""


@dataclass(frozen=True)
class Rows:
    """Rows of one verb of one task, sorted by composite key, one per key.

    ``columns``: per field, the batch's partial values; ``order``: the three columns by which the
    latest record is found, for verbs with `last`; ``high``: per sum of int64, its bits from 32 on
    before it wrapped; ``wrapped``: per sum of decimals, how many wrapped in this batch.
    """

    keys: pa.BinaryArray
    inner: pa.BinaryArray
    starts: pa.Int64Array
    timestamps: pa.Int64Array
    columns: dict[str, pa.Array]
    order: tuple[Ints, ...] | None
    high: dict[str, Ints]
    wrapped: dict[str, int]


@dataclass(frozen=True)
class Merged:
    """New values: ``values`` for the changelog; ``fields`` for outputs.

    ``wrapped``: per sum, how many overflowed (2^63, for decimals 38 digits) and wrapped around.
    """

    values: pa.BinaryArray
    timestamps: pa.Int64Array
    fields: dict[str, pa.Array]
    wrapped: dict[str, int]


def rows_of(table: pa.Table, index: int, verb: Kept) -> Rows:
    """Sort and fold the rows of a verb: the same key may come from several source partitions."""
    table = table.filter(pc.equal(table.column("kind"), index))
    inner = _flat(table.column("key"))
    starts = _flat(table.column("start"))
    keys = window_keys(inner, starts.to_numpy()) if verb.store.is_window else inner
    by_key = pc.array_sort_indices(keys)
    keys, inner, starts = keys.take(by_key), inner.take(by_key), starts.take(by_key)
    picked = table.take(by_key)
    heads = _heads(keys)
    stamps = _flat(picked.column("ts"))
    latest = _flat(picked.column(f"l{index}")) if verb.has_last else None
    order = None
    if latest is not None:
        parts = latest.field(0).flatten()
        order = tuple(_ints(p) for p in parts)
    columns: dict[str, pa.Array] = {}
    rest: dict[str, pa.Array] = {}
    for name, field in verb.fields.items():
        if (field.op, field.type) == ("sum", "int64"):
            rest[name] = _flat(picked.column(f"h{index}_{name}"))
        if field.op == "last":
            made: Any = latest.field(f"a{index}_{name}")  # type: ignore[union-attr]
        else:
            counted = field.op == "count" and field.of_rows
            made = _flat(picked.column("n" if counted else f"a{index}_{name}"))
        columns[name] = shaped(made, kind_from(field.type).arrow_type)
    if len(heads) == len(keys):
        high = {name: _joined(columns, name, part) for name, part in rest.items()}
        return Rows(keys, inner, starts, stamps, columns, order, high, {})
    at = pa.array(heads)
    winners = heads if order is None else _winners(order, heads, len(keys))
    wrapped: dict[str, int] = {}
    for name, field in verb.fields.items():
        if field.op == "last":
            columns[name] = columns[name].take(pa.array(winners))
        elif field.op == "sum" and pa.types.is_decimal(columns[name].type):
            columns[name], wrapped[name] = decimals.folded(columns[name], heads)
        else:
            columns[name] = _fold(field.op, columns[name], heads)
    rest = {name: _fold("sum", part, heads) for name, part in rest.items()}
    high = {name: _joined(columns, name, part) for name, part in rest.items()}
    return Rows(
        keys.take(at),
        inner.take(at),
        starts.take(at),
        _fold("max", stamps, heads),
        columns,
        None if order is None else tuple(part[winners] for part in order),
        high,
        wrapped,
    )


def merge(rows: Rows, stored: pa.BinaryArray, verb: Kept) -> Merged:
    """Merge rows into stored values (``timestamp ‖ value``; null where the key is new)."""
    serde: Serde[Any] = serde_from(verb.store.value_serde)
    known = pc.is_valid(stored)
    payload, old_stamps = split_timestamps(stored, NOTHING)
    stamps = np.maximum(_ints(rows.timestamps), old_stamps)
    old = serde.decode_arrow(payload)
    single = not pa.types.is_struct(old.type)
    fields: dict[str, pa.Array] = {}
    wrapped: dict[str, int] = {}
    newer: Any = None
    before: tuple[Ints, ...] = ()
    if rows.order is not None:
        before = tuple(_ints(pc.struct_field(old, name)) for name, _ in ORDER_FIELDS)
        newer = ~known.to_numpy(zero_copy_only=False) | _greater(rows.order, before)
    for name, field in verb.fields.items():
        was = old if single else pc.struct_field(old, name)
        now = rows.columns[name]
        if field.op == "last":
            fields[name] = _chosen(newer, now, was)
        elif field.op == "sum" and pa.types.is_decimal(now.type):
            fields[name], times = decimals.added(was, now)
            if times := times + rows.wrapped.get(name, 0):
                wrapped[name] = times
        else:
            fields[name] = _both(field.op, was, now)
        if name in rows.high and (times := _wraps(was, now, rows.high[name])):
            wrapped[name] = times
    if single:
        values = serde.encode_arrow(next(iter(fields.values())))
    else:
        hidden = {}
        if rows.order is not None:
            hidden = {
                name: pa.array(np.where(newer, new, was))
                for (name, _), new, was in zip(ORDER_FIELDS, rows.order, before, strict=True)
            }
        arrays = hidden | fields
        values = serde.encode_arrow(pa.StructArray.from_arrays(list(arrays.values()), list(arrays)))
    return Merged(values, pa.array(stamps), fields, wrapped)


def _flat(column: pa.ChunkedArray) -> pa.Array:
    return column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)


def _ints(array: pa.Array) -> Ints:
    filled: Ints = pc.fill_null(array.cast(pa.int64()), NOTHING).to_numpy(zero_copy_only=False)
    return filled


def _heads(keys: pa.BinaryArray) -> Ints:
    """Index of the first row of each run of equal keys."""
    if len(keys) == 0:
        return np.empty(0, np.int64)
    new = np.ones(len(keys), bool)
    new[1:] = pc.not_equal(keys[1:], keys[:-1]).to_numpy(zero_copy_only=False)
    return np.flatnonzero(new)


def _how(op: str, kind: pa.DataType) -> tuple[Any, Any]:
    """The neutral value of an operation, and its function: NaN is the greatest number."""
    if pa.types.is_floating(kind):
        return {
            "sum": (0.0, np.add),
            "min": (np.nan, np.fmin),
            "max": (-np.inf, np.maximum),
        }[op]
    return {
        "count": (0, np.add),
        "sum": (0, np.add),
        "min": (_INT64.max, np.minimum),
        "max": (_INT64.min, np.maximum),
    }[op]


def _chosen(newer: Any, now: Any, was: Any) -> Any:
    """``now`` where ``newer``, else ``was``."""
    if pa.types.is_nested(now.type):
        places = np.arange(len(now)) + np.where(newer, 0, len(now))
        return pa.concat_arrays([now, was]).take(pa.array(places))
    return pc.if_else(pa.array(newer), now, was)


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind))


def _best(op: str, values: Any, run: Ints, heads: Ints) -> Any:
    """The least or greatest value of each run, by sorting; nulls are skipped."""
    columns = {"run": pa.array(run), "there": pc.is_valid(values)}
    columns |= {f"part{i}": part for i, part in enumerate(_parts(values))}
    way = "ascending" if op == "min" else "descending"
    by: Any = [("run", "ascending"), ("there", "descending")]
    by += [(name, way) for name in list(columns)[2:]]
    order = pc.sort_indices(pa.table(columns), sort_keys=by)
    return values.take(order.take(pa.array(heads)))


def _parts(values: Any) -> Iterator[Any]:
    """Columns to sort values by: a struct by its fields, nulls first, as Spark does."""
    if not pa.types.is_struct(values.type):
        yield values
        return
    for child in values.flatten():
        yield pc.is_valid(child)
        yield from _parts(child)


def _runs(heads: Ints, rows: int) -> Ints:
    """The number of the run that each row is in."""
    run = np.zeros(rows, np.int64)
    run[heads[1:]] = 1
    return np.cumsum(run)


def _fold(op: str, column: pa.Array, heads: Ints) -> pa.Array:
    """One value for each run; nulls are skipped."""
    if not _is_number(column.type):
        return _best(op, column, _runs(heads, len(column)), heads)
    neutral, reduce = _how(op, column.type)
    valid = pc.is_valid(column).to_numpy(zero_copy_only=False)
    some = np.logical_or.reduceat(valid, heads)
    with np.errstate(all="ignore"):
        folded = reduce.reduceat(_plain(column, neutral), heads)
    return _array(folded, column.type, ~some)


def _both(op: str, was: pa.Array, now: pa.Array) -> pa.Array:
    """Two columns combined; null and a value give that value."""
    if not _is_number(now.type):
        rows = np.arange(len(now))
        both = pa.concat_arrays([was, now])
        return _best(op, both, np.concatenate([rows, rows]), rows * 2)
    neutral, join = _how(op, now.type)
    none = pc.and_(pc.is_null(was), pc.is_null(now)).to_numpy(zero_copy_only=False)
    with np.errstate(all="ignore"):
        joined = join(_plain(was, neutral), _plain(now, neutral))
    return _array(joined, now.type, none)


def _plain(column: pa.Array, instead: Any) -> npt.NDArray[Any]:
    filled = pc.fill_null(column, pa.scalar(instead, column.type))
    values: npt.NDArray[Any] = filled.to_numpy(zero_copy_only=False)
    return values


def _array(values: npt.NDArray[Any], kind: pa.DataType, none: npt.NDArray[np.bool_]) -> pa.Array:
    if pa.types.is_floating(kind):  # one form of NaN and of zero
        values = np.where(np.isnan(values), np.nan, values + 0.0)
    return pa.array(values, kind, mask=none)


def _joined(columns: dict[str, pa.Array], name: str, rest: pa.Array) -> Ints:
    """Add a sum's two parts modulo 2^64; returns its bits from 32 on before it wrapped."""
    low, none = _plain(columns[name], 0), pc.is_null(rest).to_numpy(zero_copy_only=False)
    high: Ints = _plain(rest, 0) + (low >> 32)
    columns[name] = pa.array((high << 32) + (low & _LOW), pa.int64(), mask=none)
    return high


def _wraps(was: pa.Array, now: pa.Array, high: Ints) -> int:
    """How many sums overflow 64 bits."""
    old, new = _plain(was, 0), _plain(now, 0)
    exact = high + (old >> 32) + (((old & _LOW) + (new & _LOW)) >> 32)
    return int(np.count_nonzero((exact < -(1 << 31)) | (exact >= 1 << 31)))


def _greater(a: tuple[Ints, ...], b: tuple[Ints, ...]) -> npt.NDArray[np.bool_]:
    out = np.zeros(len(a[0]), bool)
    same = np.ones(len(a[0]), bool)
    for left, right in zip(a, b, strict=True):
        out |= same & (left > right)
        same &= left == right
    return out


def _winners(order: tuple[Ints, ...], heads: Ints, rows: int) -> Ints:
    """Per run, the row with the greatest order."""
    run = _runs(heads, rows)
    ranked = np.lexsort((order[2], order[1], order[0], run))
    ends = np.append(heads[1:], rows) - 1
    winners: Ints = ranked[ends]
    return winners
