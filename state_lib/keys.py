"""Where a key belongs, and how keys and stamps are laid out: to the byte as Kafka Streams has them.

Sources: ``org.apache.kafka.common.utils.Utils.murmur2`` and ``toPositive``, ``WindowKeySchema``,
``ValueAndTimestampSerializer``. All numbers are big-endian.

- In a window store and its changelog: ``key ‖ start (8 bytes, signed) ‖ seqnum (4 bytes)``; starts
  are milliseconds since 1970 and may be negative. Negative starts sort after positive ones.
- In an output of a window store: ``key ‖ start``.
- Values of timestamped and window stores: ``timestamp (8 bytes, ms) ‖ value``. Their changelogs
  have the value alone, for its timestamp is the record's.

Numpy and pyarrow are imported where whole columns are taken: a restore's workers need the rest.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from state_lib.errors import SerdeError

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import pyarrow as pa

    from state_lib.serdes.columns import Bytes1, Ints

START_BYTES = 8
SUFFIX_BYTES = 12
"""Of a window key behind the inner key: start and sequence number."""
START = slice(-SUFFIX_BYTES, START_BYTES - SUFFIX_BYTES)
"""Where the start lies in a window key."""
STAMP_BYTES = 8
_SUFFIX, _NUMBER = struct.Struct(">qi"), struct.Struct(">q")
_SEED, _M = 0x9747B28C, 0x5BD1E995
_MASK = 0xFFFFFFFF


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
        raise _too_short("a window key", SUFFIX_BYTES, composite)
    start, seq = _SUFFIX.unpack_from(composite, len(composite) - SUFFIX_BYTES)
    return composite[:-SUFFIX_BYTES], start, seq


def start_of(raw: bytes) -> int:
    """A window's start (ms) from its 8 bytes, such as those at `START`."""
    return int.from_bytes(raw, "big", signed=True)


def output_key(composite: bytes) -> bytes:
    """``key ‖ start`` of a window key: Kafka Streams' windowed topic serde."""
    return composite[: START.stop]


def split_output_key(key: bytes) -> tuple[bytes, int]:
    """Inner key and start (ms). Raises SerdeError if shorter than a start."""
    if len(key) < START_BYTES:
        raise _too_short("a window's key in an output", START_BYTES, key)
    return key[:-START_BYTES], start_of(key[-START_BYTES:])


def window_keys(keys: pa.Array[Any], starts_ms: npt.NDArray[np.int64]) -> pa.BinaryArray:
    """`window_key` of every key with its start, seqnum 0. Raises SerdeError on a null key."""
    import numpy as np

    from state_lib.serdes.columns import binary_array, gather, ragged_index, starts_of

    data, begins, lengths = _rows(keys)
    if len(starts_ms) != len(lengths):
        raise SerdeError(
            f"{len(lengths)} keys with {len(starts_ms)} starts", serde="window", seen=len(starts_ms)
        )
    at = starts_of(lengths + SUFFIX_BYTES)
    out = np.zeros(int(at[-1]), np.uint8)
    out[ragged_index(at[:-1], lengths)] = gather(data, begins, lengths)
    packed = np.asarray(starts_ms, np.int64).astype(">i8").view(np.uint8).reshape(-1, START_BYTES)
    tail = at[1:] - SUFFIX_BYTES
    for column in range(START_BYTES):
        out[tail + column] = packed[:, column]
    return binary_array(out, lengths + SUFFIX_BYTES, None)


def split_window_keys(composite: pa.Array[Any]) -> tuple[pa.BinaryArray, Ints]:
    """`split_window_key` of every key: inner keys and starts (ms).

    Raises:
        SerdeError: a key is null, or shorter than the suffix.
    """
    import numpy as np

    from state_lib.serdes.columns import binary_array, gather

    data, begins, lengths = _rows(composite)
    inner = lengths - SUFFIX_BYTES
    if len(inner) and inner.min() < 0:
        at = int(inner.argmin())
        seen = data[begins[at] : begins[at] + lengths[at]].tobytes()
        raise _too_short("a window key", SUFFIX_BYTES, seen)
    raw = data[(begins + inner)[:, None] + np.arange(START_BYTES)].reshape(-1)
    return binary_array(gather(data, begins, inner), inner, None), raw.view(">i8").astype(np.int64)


def stamped(times: Iterable[int], values: Iterable[bytes | None]) -> list[bytes | None]:
    """Values with their timestamps (ms) before them; None stays None."""
    pack = _NUMBER.pack
    return [None if v is None else pack(t) + v for t, v in zip(times, values, strict=True)]


def split_timestamp(stored: bytes) -> tuple[bytes, int]:
    """Value and timestamp (ms). Raises SerdeError if shorter than a timestamp."""
    if len(stored) < STAMP_BYTES:
        raise _too_short("a timestamped value", STAMP_BYTES, stored, "timestamped")
    return stored[STAMP_BYTES:], _NUMBER.unpack_from(stored)[0]


def split_timestamps(stored: pa.BinaryArray, nothing: int = 0) -> tuple[pa.BinaryArray, Ints]:
    """`split_timestamp` of every value: values and timestamps (ms); ``nothing`` where it is null.

    By hand: pyarrow's ``binary_slice`` fails on arrays with many nulls (26.0, "Negative buffer
    resize").

    Raises:
        SerdeError: one is shorter than a timestamp.
    """
    import numpy as np

    from state_lib.serdes.columns import binary_array, binary_parts, gather, valid_mask

    data, begins, lengths = binary_parts(stored)
    valid = valid_mask(stored)
    rest = lengths - STAMP_BYTES
    if valid is not None:
        rest = np.where(valid, rest, 0)
        begins = np.where(valid, begins, -STAMP_BYTES)  # reads nothing
    if len(rest) and rest.min() < 0:
        seen = stored[int(rest.argmin())].as_py()
        raise _too_short("a timestamped value", STAMP_BYTES, seen, "timestamped")
    there = begins if valid is None else begins[valid]
    found = data[there[:, None] + np.arange(STAMP_BYTES)].reshape(-1).view(">i8")
    stamps = found.astype(np.int64)
    if valid is not None:
        stamps = np.full(len(valid), nothing, np.int64)
        stamps[valid] = found
    return binary_array(gather(data, begins + STAMP_BYTES, rest), rest, valid), stamps


def after(key: bytes) -> bytes:
    """The least key greater than ``key``."""
    return key + b"\0"


def after_prefix(prefix: bytes) -> bytes | None:
    """The least key greater than all that start with the prefix; None if there is none."""
    head = prefix.rstrip(b"\xff")
    return head[:-1] + bytes([head[-1] + 1]) if head else None


def _rows(keys: Any) -> tuple[Bytes1, Ints, Ints]:
    from state_lib.serdes.base import as_binary
    from state_lib.serdes.columns import binary_parts

    array = as_binary("key", keys)
    if array.null_count:
        raise SerdeError("a null key has no place here: skip it before", serde="key", seen=None)
    return binary_parts(array)


def _too_short(what: str, least: int, seen: bytes, serde: str = "window") -> SerdeError:
    return SerdeError(
        f"{what} has at least {least} bytes, not {len(seen)}", serde=serde, seen=seen.hex()
    )
