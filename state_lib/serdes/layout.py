"""The byte layout of a packed struct, one value at a time.

::

    null bitmap   ceil(n/8) bytes; bit i (least significant first) set: field i is null
    fixed fields  in order, big-endian; zero if null
    others        in order: length (4 bytes, big-endian), then the bytes; length 0 if null
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from state_lib.errors import ConfigurationError

FIXED: dict[str, tuple[str, str, pa.DataType]] = {
    "int64": ("q", ">i8", pa.int64()),
    "int32": ("i", ">i4", pa.int32()),
    "float64": ("d", ">f8", pa.float64()),
    "bool": ("?", "u1", pa.bool_()),
}
VARIABLE: dict[str, pa.DataType] = {"utf8": pa.string(), "bytes": pa.binary()}
_ACCEPTS: dict[str, tuple[type, ...]] = {
    "int64": (int,),
    "int32": (int,),
    "float64": (int, float),
    "bool": (bool,),
    "utf8": (str,),
    "bytes": (bytes,),
}


class Layout:
    """Field names and types with what follows from them.

    Attributes:
        fields: ``(name, type)`` in declared order; the index is the field's null bit.
        fixed, variable: indexes of the fields of each sort.
        bitmap_bytes, head_bytes: size of the bitmap, and of bitmap plus fixed fields.
        dtype: bitmap and fixed fields (``nulls``, ``f<index>``) as one packed numpy record.
    """

    def __init__(self, fields: Sequence[tuple[str, str]]) -> None:
        names = [name for name, _ in fields]
        if not names or len(set(names)) != len(names):
            raise ConfigurationError(f"a struct needs fields with distinct names, not {names}")
        for name, kind in fields:
            if kind not in FIXED and kind not in VARIABLE:
                raise ConfigurationError(
                    f"struct field {name!r} has type {kind!r}; known: {[*FIXED, *VARIABLE]}"
                )
        self.fields = tuple(fields)
        self.fixed = tuple(i for i, (_, kind) in enumerate(fields) if kind in FIXED)
        self.variable = tuple(i for i, (_, kind) in enumerate(fields) if kind in VARIABLE)
        self.bitmap_bytes = (len(fields) + 7) // 8
        columns = [(f"f{i}", FIXED[fields[i][1]][1]) for i in self.fixed]
        self.dtype = np.dtype([("nulls", "u1", (self.bitmap_bytes,)), *columns])
        self.head_bytes = self.dtype.itemsize
        self._packer = struct.Struct(">" + "".join(FIXED[fields[i][1]][0] for i in self.fixed))

    def pack(self, value: Mapping[str, Any]) -> bytes:
        """One value. Raises ValueError or struct.error saying what is wrong with it."""
        if value.keys() != {name for name, _ in self.fields}:
            raise ValueError(f"fields {sorted(value)} instead of {[n for n, _ in self.fields]}")
        row = [value[name] for name, _ in self.fields]
        for (name, kind), item in zip(self.fields, row, strict=True):
            if item is None:
                continue
            if not isinstance(item, _ACCEPTS[kind]) or isinstance(item, bool) != (kind == "bool"):
                raise ValueError(f"field {name!r} is not {kind}: {item!r}")
        nulls = sum(1 << i for i, item in enumerate(row) if item is None)
        parts = [
            nulls.to_bytes(self.bitmap_bytes, "little"),
            self._packer.pack(*(0 if row[i] is None else row[i] for i in self.fixed)),
        ]
        for i in self.variable:
            item = row[i] if row[i] is not None else b""
            data = item.encode() if isinstance(item, str) else item
            parts += (len(data).to_bytes(4, "big"), data)
        return b"".join(parts)

    def unpack(self, data: bytes) -> dict[str, Any]:
        """The value of `pack`. Raises ValueError or struct.error unless every byte fits."""
        if len(data) < self.head_bytes:
            raise ValueError(f"{len(data)} bytes, at least {self.head_bytes} needed")
        nulls = int.from_bytes(data[: self.bitmap_bytes], "little")
        if nulls >> len(self.fields):
            raise ValueError("a null bit is set beyond the last field")
        row: dict[int, Any] = dict(
            zip(self.fixed, self._packer.unpack_from(data, self.bitmap_bytes), strict=True)
        )
        at = self.head_bytes
        for i in self.variable:
            end = at + 4 + int.from_bytes(data[at : at + 4], "big")
            if at + 4 > len(data) or end > len(data) or (nulls >> i & 1 and end != at + 4):
                raise ValueError(f"the length of field {self.fields[i][0]!r} does not fit")
            raw = data[at + 4 : end]
            row[i] = raw.decode() if self.fields[i][1] == "utf8" else raw
            at = end
        if at != len(data):
            raise ValueError(f"{len(data) - at} bytes too many")
        return {name: None if nulls >> i & 1 else row[i] for i, (name, _) in enumerate(self.fields)}


def pairs_of(description: Any) -> Sequence[tuple[str, str]]:
    """``[[name, type], ...]`` as pairs of strings. Raises ConfigurationError."""
    try:
        return [(str(name), str(kind)) for name, kind in description]
    except (TypeError, ValueError) as error:
        raise ConfigurationError(
            f"a struct is described as [[name, type], ...], not as {description!r}"
        ) from error
