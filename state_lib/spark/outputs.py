"""Rows of a store as they appear in output topics: JSON objects with key, window and fields."""

from __future__ import annotations

import orjson
import pyarrow as pa

from state_lib.declaration import WINDOW_FIELDS, Kept
from state_lib.serdes import serde_from
from state_lib.spark.merge import Merged, Rows


def output_values(verb: Kept, rows: Rows, merged: Merged) -> pa.BinaryArray:
    """One JSON object per row; windows in ms since the epoch, binary keys as hex."""
    keys = serde_from(verb.key_serde).decode_arrow(rows.inner)
    columns: dict[str, list[object]] = {verb.key_name: _plain(keys)}
    if verb.store.is_window:
        starts = rows.starts.to_pylist()
        ends = [s + verb.store.window_size_ms for s in starts]
        columns |= dict(zip(WINDOW_FIELDS, (starts, ends), strict=True))
    columns |= {name: array.to_pylist() for name, array in merged.fields.items()}
    names = list(columns)
    records = zip(*columns.values(), strict=True)
    return pa.array([orjson.dumps(dict(zip(names, r, strict=True))) for r in records], pa.binary())


def output_keys(verb: Kept, rows: Rows) -> pa.BinaryArray:
    """The store's key without the sequence number: Kafka Streams' windowed topic serde."""
    if not verb.store.is_window:
        return rows.keys
    return pa.array([key[:-4] for key in rows.keys.to_pylist()], pa.binary())


def _plain(keys: pa.Array) -> list[object]:
    values: list[object] = keys.to_pylist()
    return [v.hex() if isinstance(v, bytes) else v for v in values]
