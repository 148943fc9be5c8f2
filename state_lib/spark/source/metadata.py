"""The column ``_metadata``: where the task stood that a row was read from."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_type
from pyspark.sql.types import (
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from state_lib.protocol.marker import NO_TIME, Marker

METADATA = StructType(
    [
        StructField("task", IntegerType()),
        StructField("epoch", LongType()),
        StructField("batch_number", LongType()),
        StructField("positions", MapType(StringType(), MapType(IntegerType(), LongType()))),
        StructField("stream_time_ms", LongType()),
        StructField("committed_at", TimestampType()),
        StructField("snapshot", StringType()),
    ]
)
"""``positions``: source topic → partition → next offset. ``snapshot``: its id, null when live."""
_US = 1000


def metadata(task: int, marker: Marker, snapshot: str | None) -> Repeated:
    """The column of rows that a task had at a marker; ``snapshot``: id of where they lie."""
    positions = [
        (topic, [(int(partition), offset) for partition, offset in parts.items()])
        for topic, parts in marker.positions.to_json().items()
    ]
    reached = marker.stream_time_ms
    value = {
        "task": task,
        "epoch": marker.epoch,
        "batch_number": marker.batch_number,
        "positions": positions,
        "stream_time_ms": None if reached == NO_TIME else reached,
        "committed_at": marker.written_at * _US,
        "snapshot": snapshot,
    }
    return Repeated(value, to_arrow_type(METADATA, timezone="UTC"))


class Repeated:
    """One value as columns of any length.

    Attributes:
        nbytes: what it takes in each row.
    """

    def __init__(self, value: Mapping[str, Any], kind: pa.DataType) -> None:
        self._one = self._many = pa.array([value], kind)
        self.nbytes: int = self._one.nbytes

    def rows(self, count: int) -> pa.Array:
        """So many of it."""
        if count > len(self._many):
            self._many = self._one.take(pa.array(np.zeros(count, np.int64)))
        return self._many[:count]
