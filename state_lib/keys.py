"""Where a key belongs and how window keys are laid out: byte for byte as Kafka and Kafka Streams.

Sources: ``org.apache.kafka.common.utils.Utils.murmur2`` and ``toPositive``, ``WindowKeySchema``.
Composite window key: ``key ‖ start (8 bytes, signed) ‖ seqnum (4 bytes)``, big-endian; starts are
milliseconds since 1970 and may be negative. Negative starts sort after positive ones.
"""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from state_lib.errors import SerdeError
from state_lib.serdes.base import as_binary
from state_lib.serdes.columns import (
    Bytes1,
    Ints,
    binary_array,
    binary_parts,
    gather,
    ragged_index,
    starts_of,
)
from state_lib.specs import SUFFIX_BYTES

_SUFFIX = struct.Struct(">qi")
_SEED, _M = 0x9747B28C, 0x5BD1E995
_MASK = 0xFFFFFFFF
_START_BYTES = 8


def murmur2(key: bytes) -> int:
    """Kafka's murmur2 as a signed 32-bit number."""
    h = _SEED ^ len(key)
    whole = len(key) & ~3
    for (word,) in struct.iter_unpack("<I", key[:whole]):
        k = word * _M & _MASK
        k = (k ^ k >> 24) * _M & _MASK
        h = (h * _M & _MASK) ^ k
    if whole < len(key):
        h = (h ^ int.from_bytes(key[whole:], "little")) * _M & _MASK
    h = (h ^ h >> 13) * _M & _MASK
    h ^= h >> 15
    return h - (1 << 32) if h >> 31 else h


def partition_for(key: bytes, n: int) -> int:
    """Kafka's default partition of a key among ``n``: ``toPositive(murmur2(key)) % n``."""
    return (murmur2(key) & 0x7FFFFFFF) % n


def window_key(key: bytes, start_ms: int, seq: int = 0) -> bytes:
    """``key ‖ start ‖ seqnum``: the key in a window store and its changelog."""
    return key + _SUFFIX.pack(start_ms, seq)


def split_window_key(composite: bytes) -> tuple[bytes, int, int]:
    """Inner key, start (ms) and seqnum. Raises SerdeError if shorter than the suffix."""
    if len(composite) < SUFFIX_BYTES:
        raise _too_short(len(composite), composite)
    start, seq = _SUFFIX.unpack_from(composite, len(composite) - SUFFIX_BYTES)
    return composite[:-SUFFIX_BYTES], start, seq


def window_keys(keys: pa.Array[Any], starts_ms: npt.NDArray[np.int64]) -> pa.BinaryArray:
    """`window_key` of every key with its start, seqnum 0. Raises SerdeError on a null key."""
    data, begins, lengths = _rows(keys)
    if len(starts_ms) != len(lengths):
        raise SerdeError(
            f"{len(lengths)} keys with {len(starts_ms)} starts", serde="window", seen=len(starts_ms)
        )
    at = starts_of(lengths + SUFFIX_BYTES)
    out = np.zeros(int(at[-1]), np.uint8)
    out[ragged_index(at[:-1], lengths)] = gather(data, begins, lengths)
    packed = np.asarray(starts_ms, np.int64).astype(">i8").view(np.uint8).reshape(-1, 8)
    tail = at[1:] - SUFFIX_BYTES
    for column in range(8):
        out[tail + column] = packed[:, column]
    return binary_array(out, lengths + SUFFIX_BYTES, None)


def split_window_keys(composite: pa.Array[Any]) -> tuple[pa.BinaryArray, Ints]:
    """`split_window_key` of every key: inner keys and starts (ms).

    Raises:
        SerdeError: a key is null, or shorter than the suffix.
    """
    data, begins, lengths = _rows(composite)
    inner = lengths - SUFFIX_BYTES
    if len(inner) and inner.min() < 0:
        at = int(inner.argmin())
        raise _too_short(int(lengths[at]), data[begins[at] : begins[at] + lengths[at]].tobytes())
    raw = data[(begins + inner)[:, None] + np.arange(_START_BYTES)].reshape(-1)
    return binary_array(gather(data, begins, inner), inner, None), raw.view(">i8").astype(np.int64)


def _rows(keys: Any) -> tuple[Bytes1, Ints, Ints]:
    array = as_binary("key", keys)
    if array.null_count:
        raise SerdeError("a null key has no place here: skip it before", serde="key", seen=None)
    return binary_parts(array)


def _too_short(size: int, seen: bytes) -> SerdeError:
    return SerdeError(
        f"a window key has at least {SUFFIX_BYTES} bytes, not {size}",
        serde="window",
        seen=seen.hex(),
    )
