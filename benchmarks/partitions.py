"""Kafka's partitions of a column of keys at once, for benchmarks that commit without Spark."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from state_lib.keys import partition_for
from state_lib.serdes.base import as_binary
from state_lib.serdes.columns import binary_parts

_SEED, _M = 0x9747B28C, 0x5BD1E995
_LONG = 512  # bytes; rarer, longer keys are hashed one by one


def partitions_for(keys: pa.Array[Any], n: int) -> npt.NDArray[np.int32]:
    """`partition_for` of every key; none is null."""
    data, starts, lengths = binary_parts(as_binary("key", keys))
    h = np.uint32(_SEED) ^ lengths.astype(np.uint32)
    order = np.argsort(-lengths, kind="stable")
    long = int(np.count_nonzero(lengths > _LONG))
    order = order[long:]
    padded = np.concatenate([data, np.zeros(4, np.uint8)])
    words = np.ndarray((len(data) + 1,), "<u4", padded, strides=(1,))
    at, hashes, whole = starts[order], h[order], lengths[order] // 4
    for i in range(int(whole[0]) if len(order) else 0):
        active = int(np.searchsorted(-whole, -i, side="left"))
        k = words[at[:active] + 4 * i] * np.uint32(_M)
        k = (k ^ (k >> np.uint32(24))) * np.uint32(_M)
        hashes[:active] = hashes[:active] * np.uint32(_M) ^ k
    left = (lengths[order] & 3).astype(np.uint32)
    tail = words[at + 4 * whole] & ((np.uint32(1) << (left * np.uint32(8))) - np.uint32(1))
    hashes = np.where(left > 0, (hashes ^ tail) * np.uint32(_M), hashes)
    hashes = (hashes ^ (hashes >> np.uint32(13))) * np.uint32(_M)
    out = np.empty(len(lengths), np.int32)
    out[order] = ((hashes ^ (hashes >> np.uint32(15))) & np.uint32(0x7FFFFFFF)) % np.uint32(n)
    for row in np.flatnonzero(lengths > _LONG):
        start = int(starts[row])
        out[row] = partition_for(data[start : start + int(lengths[row])].tobytes(), n)
    return out
