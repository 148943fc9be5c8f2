"""Serdes and keys: columns to bytes and back, the partition of a key."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from benchmarks.layers.timing import Timing, timed
from benchmarks.partitions import partitions_for
from benchmarks.sources import key
from state_lib.keys import window_keys
from state_lib.serdes import Serde, serde_from


def run(rows: int) -> Iterator[Timing]:
    """Time every operation over ``rows`` rows."""
    numbers = np.random.default_rng(1).permutation(rows)
    keys = pa.array([key(i) for i in numbers.tolist()], pa.binary())
    int64 = pa.array(numbers)
    struct = pa.StructArray.from_arrays(
        [
            int64,
            pa.array(numbers.astype(np.float64)),
            pa.array([f"place-{i % 100}" for i in numbers]),
        ],
        ["n", "sum", "last"],
    )
    layout = {"struct": [["n", "int64"], ["sum", "float64"], ["last", "utf8"]]}
    for name, described, column in (("int64", "int64", int64), ("struct", layout, struct)):
        yield from _both_ways(name, serde_from(described), column)
    yield timed("serde", "partition of a key", rows, lambda _: partitions_for(keys, 4))
    yield timed("serde", "window key", rows, lambda _: window_keys(keys, numbers))


def _both_ways(name: str, serde: Serde[Any], column: pa.Array[Any]) -> Iterator[Timing]:
    encoded = serde.encode_arrow(column)
    yield timed("serde", f"{name}: encode", len(column), lambda _: serde.encode_arrow(column))
    yield timed("serde", f"{name}: decode", len(column), lambda _: serde.decode_arrow(encoded))
