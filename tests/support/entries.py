"""Entries of a batch as Spark would bring them to a task, for what takes rows by key. No JVM."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from pyspark.sql.types import LongType, StringType, StructField, StructType

from state_lib.executor.plan import SEEN
from state_lib.protocol.positions import Positions

ROWS = StructType([StructField("k", StringType()), StructField("x", LongType())])
SOURCES = Positions({("b", 0): 9, ("a", 0): 9, ("a", 1): 9})
Entry = tuple[str, int, int, int, int]


def entries(*rows: Entry, explodes: int = 0, window_ms: int = 0) -> pa.Table:
    """Entries of verb 0: key, x, time, number of the source partition, offset."""
    fields = [("offset", pa.int64())]
    fields += [(f"p{at}", pa.int32()) for at in range(explodes)]
    row = pa.struct([("k", pa.string()), ("x", pa.int64())])
    kind = pa.struct([*fields, ("row", row), ("key", pa.binary()), ("value", pa.binary())])
    structs: list[Any] = [
        {
            "offset": offset,
            **{f"p{at}": number for at in range(explodes)},
            "row": {"k": key, "x": x},
            "key": None,
            "value": f"{key}{x}".encode(),
        }
        for number, (key, x, _, _, offset) in enumerate(rows)
    ]
    starts = [r[2] - r[2] % window_ms if window_ms else 0 for r in rows]
    return pa.table(
        {
            "kind": pa.array([0] * len(rows) + [SEEN], pa.int32()),
            "key": pa.array([*(r[0].encode() for r in rows), None], pa.binary()),
            "start": pa.array([*starts, 0], pa.int64()),
            "src": pa.array([*(r[3] for r in rows), 0], pa.int32()),
            "ts": pa.array([*(r[2] for r in rows), 0], pa.int64()),
            "r0": pa.array([*structs, None], kind),
        }
    )
