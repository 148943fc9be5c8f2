"""Entries of a store in output topics: JSON objects with key, window and fields."""

from __future__ import annotations

from typing import Any

import orjson
import pyarrow as pa

from state_lib.declaration import WINDOW_FIELDS, Kept
from state_lib.executor.merge import Merged, Rows
from state_lib.keys import output_key
from state_lib.serdes import serde_from
from state_lib.serdes.kinds import Kind, columns_of
from state_lib.serdes.shown import is_json, to_json


def output_values(verb: Kept, rows: Rows, merged: Merged) -> pa.BinaryArray:
    """One JSON object per row; windows in ms since the epoch, values as `serdes.shown` has them."""
    columns = _key(verb, rows)
    if verb.store.is_window:
        starts = rows.starts.to_pylist()
        ends = [s + verb.store.window_size_ms for s in starts]
        columns |= dict(zip(WINDOW_FIELDS, (starts, ends), strict=True))
    fields = merged.fields.items()
    columns |= {name: _shown(verb.fields[name].type, array) for name, array in fields}
    names = list(columns)
    records = zip(*columns.values(), strict=True)
    return pa.array([orjson.dumps(dict(zip(names, r, strict=True))) for r in records], pa.binary())


def output_keys(verb: Kept, rows: Rows) -> pa.BinaryArray:
    """The store's key without the sequence number: Kafka Streams' windowed topic serde."""
    if not verb.store.is_window:
        return rows.keys
    return pa.array([output_key(key) for key in rows.keys.to_pylist()], pa.binary())


def _key(verb: Kept, rows: Rows) -> dict[str, list[Any]]:
    """The key by its name, or its columns by theirs."""
    keys: Any = serde_from(verb.key_serde).decode_arrow(rows.inner)
    columns = [] if verb.key_name else columns_of(verb.key_serde)
    if not columns:
        return {verb.key_name: _shown(verb.key_serde, keys)}
    return {name: _shown(kind, keys.field(name)) for name, kind in columns}


def _shown(kind: Kind, column: Any) -> list[Any]:
    values: list[Any] = column.to_pylist()
    return values if is_json(kind) else [to_json(kind, value) for value in values]
