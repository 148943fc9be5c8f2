"""Arrow buffers as numpy and back: the byte shuffling below every columnar encoding.

All functions take sliced arrays (``offset != 0``) and nulls whose slots hold bytes.
"""

from __future__ import annotations

from typing import Any, TypeAlias, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from state_lib.errors import SerdeError

Bytes1: TypeAlias = npt.NDArray[np.uint8]
Ints: TypeAlias = npt.NDArray[np.int64]
Mask: TypeAlias = npt.NDArray[np.bool_]

MAX_BINARY_BYTES = 2**31 - 1
"""What one Arrow ``binary`` array can hold (32-bit offsets)."""


def valid_mask(array: Any) -> Mask | None:
    """True where not null; None if nothing is null."""
    if array.null_count == 0:
        return None
    if array.buffers()[0] is None:  # an array of type null has no bitmap
        return np.zeros(len(array), np.bool_)
    return unpack_bits(array.buffers()[0], array.offset, len(array))


def view_of(array: Any, dtype: str) -> npt.NDArray[Any]:
    """The values of a fixed-width array, nulls' slots included, without a copy."""
    kind = np.dtype(dtype)
    if array.buffers()[1] is None:
        return np.zeros(len(array), kind)
    return np.frombuffer(array.buffers()[1], kind, len(array), array.offset * kind.itemsize)


def buffer_of(values: Any) -> pa.Buffer:
    """The values as an Arrow buffer."""
    contiguous: Any = np.ascontiguousarray(values)
    return pa.py_buffer(contiguous)


def unpack_bits(buffer: Any, offset: int, count: int) -> Mask:
    """``count`` bits of an Arrow bitmap from bit ``offset``."""
    raw = np.frombuffer(buffer, np.uint8)[offset // 8 : (offset + count + 7) // 8]
    start = offset % 8
    return np.unpackbits(raw, bitorder="little")[start : start + count].astype(np.bool_)


def bitmap(mask: Mask | None) -> pa.Buffer | None:
    """An Arrow bitmap of the mask; None stays None (nothing is null)."""
    return None if mask is None else buffer_of(np.packbits(mask, bitorder="little"))


def binary_parts(array: Any) -> tuple[Bytes1, Ints, Ints]:
    """The bytes of the array's rows, and each row's start and length (0 for nulls).

    ``array`` is of type binary or string. The bytes are a view of the part that its rows span.
    """
    count = len(array)
    buffers = array.buffers()
    if count == 0 or buffers[1] is None:
        return np.empty(0, np.uint8), np.zeros(count, np.int64), np.zeros(count, np.int64)
    offsets = np.frombuffer(buffers[1], np.int32, count + 1, array.offset * 4).astype(np.int64)
    first, last = int(offsets[0]), int(offsets[-1])
    whole = np.empty(0, np.uint8) if buffers[2] is None else np.frombuffer(buffers[2], np.uint8)
    data = whole[first:last]
    offsets -= first
    lengths = np.diff(offsets)
    valid = valid_mask(array)
    if valid is not None:
        lengths = np.where(valid, lengths, 0)
    return data, offsets[:-1], lengths


def starts_of(lengths: Ints) -> Ints:
    """Start of each row when rows of these lengths lie one after another, and the total last."""
    ends = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=ends[1:])
    return ends


def ragged_index(starts: Ints, lengths: Ints) -> Ints:
    """Positions of all bytes of rows ``[start, start + length)``, row after row."""
    ends = np.cumsum(lengths)
    total = int(ends[-1]) if len(ends) else 0
    return np.repeat(starts - (ends - lengths), lengths) + np.arange(total, dtype=np.int64)


def gather(data: Bytes1, starts: Ints, lengths: Ints) -> Bytes1:
    """The rows' bytes laid end to end; a view when they already are."""
    if len(starts) == 0:
        return data[:0]
    packed = starts_of(lengths)
    if np.array_equal(packed[:-1] + starts[0], starts):
        return data[int(starts[0]) : int(starts[0]) + int(packed[-1])]
    return data[ragged_index(starts, lengths)]


def binary_array(data: Bytes1, lengths: Ints, valid: Mask | None) -> pa.BinaryArray:
    """An Arrow binary array over bytes that lie end to end.

    ``lengths`` has one entry for each row, 0 for a null.

    Raises:
        SerdeError: more than 2 GiB in one array; send smaller batches.
    """
    offsets = starts_of(lengths)
    if offsets[-1] > MAX_BINARY_BYTES:
        raise SerdeError(
            f"{offsets[-1]} bytes do not fit into one Arrow binary array of at most "
            f"{MAX_BINARY_BYTES}: send smaller batches",
            serde="binary",
            seen=int(offsets[-1]),
        )
    buffers = [
        bitmap(valid),
        buffer_of(offsets.astype(np.int32)),
        buffer_of(data),
    ]
    nulls = 0 if valid is None else int(len(valid) - np.count_nonzero(valid))
    made: Any = pa.Array.from_buffers(pa.binary(), len(lengths), buffers, nulls)
    return cast("pa.BinaryArray", made)


def spread(lengths: Ints, valid: Mask | None) -> Ints:
    """Lengths of the valid rows as lengths of all rows, 0 for nulls."""
    if valid is None:
        return lengths
    out = np.zeros(len(valid), np.int64)
    out[valid] = lengths
    return out


def only_valid(array: Any) -> tuple[Any, Mask | None]:
    """The array without its nulls, and where they were."""
    valid = valid_mask(array)
    return (array, None) if valid is None else (array.filter(pa.array(valid)), valid)
