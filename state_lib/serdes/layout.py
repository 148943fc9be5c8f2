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

from state_lib.errors import ConfigurationError
from state_lib.serdes.kinds import Fixed, Kind, Variable, kind_from


class Layout:
    """Field names and types with what follows from them.

    Attributes:
        fields: ``(name, type)`` in declared order; the index is the field's null bit.
        kinds: what the types mean (`state_lib.serdes.kinds`).
        fixed, variable: indexes of the fields of each sort.
        bitmap_bytes, head_bytes: size of the bitmap, and of bitmap plus fixed fields.
        dtype: bitmap and fixed fields (``nulls``, ``f<index>``) as one packed numpy record.
    """

    def __init__(self, fields: Sequence[tuple[str, Kind]]) -> None:
        names = [name for name, _ in fields]
        if not names or len(set(names)) != len(names):
            raise ConfigurationError(f"a struct needs fields with distinct names, not {names}")
        self.fields = tuple(fields)
        self.kinds = tuple(_kind(name, kind) for name, kind in fields)
        self.fixed = tuple(i for i, kind in enumerate(self.kinds) if isinstance(kind, Fixed))
        self.variable = tuple(i for i in range(len(fields)) if i not in self.fixed)
        self.bitmap_bytes = (len(fields) + 7) // 8
        kinds = {i: kind for i, kind in enumerate(self.kinds) if isinstance(kind, Fixed)}
        columns = [
            (f"f{i}", kind.dtype, kind.shape) if kind.shape else (f"f{i}", kind.dtype)
            for i, kind in kinds.items()
        ]
        self.dtype = np.dtype([("nulls", "u1", (self.bitmap_bytes,)), *columns])
        self.head_bytes = self.dtype.itemsize
        self._packer = struct.Struct(">" + "".join(kind.code for kind in kinds.values()))

    def pack(self, value: Mapping[str, Any]) -> bytes:
        """One value. Raises ValueError or struct.error saying what is wrong with it."""
        self._require_mapping(value)
        if value.keys() != {name for name, _ in self.fields}:
            raise ValueError(f"fields {sorted(value)} instead of {[n for n, _ in self.fields]}")
        row = [value[name] for name, _ in self.fields]
        nulls, fixed, variable = 0, list[Any](), list[bytes]()
        for i, (item, kind) in enumerate(zip(row, self.kinds, strict=True)):
            if item is None:
                nulls |= 1 << i
            elif not kind.fits(item):
                name, described = self.fields[i]
                raise ValueError(f"field {name!r} is not {described}: {item!r}")
            if isinstance(kind, Fixed):
                fixed.append(kind.zero if item is None else kind.raw(item))
            else:
                data = b"" if item is None else kind.pack(item)
                variable += (len(data).to_bytes(4, "big"), data)
        head = nulls.to_bytes(self.bitmap_bytes, "little")
        return b"".join([head, self._packer.pack(*fixed), *variable])

    def prefix(self, value: Mapping[str, Any]) -> bytes:
        """How all values begin that have no null and, in the fields that come first, these.

        Raises:
            ValueError: other fields, or of another type.
        """
        self._require_mapping(value)
        order = [*self.fixed, *self.variable]
        parts = [bytes(self.bitmap_bytes)]
        if {self.fields[i][0] for i in order[: len(value)]} != value.keys():
            names = [self.fields[i][0] for i in order]
            raise ValueError(f"{sorted(value)} are not the first of {names}")
        for i in order[: len(value)]:
            (name, described), kind = self.fields[i], self.kinds[i]
            item = value[name]
            if item is None or not kind.fits(item):
                raise ValueError(f"field {name!r} is not {described}: {item!r}")
            if isinstance(kind, Fixed):
                parts.append(struct.pack(f">{kind.code}", kind.raw(item)))
            else:
                data = kind.pack(item)
                parts += (len(data).to_bytes(4, "big"), data)
        return b"".join(parts)

    def _require_mapping(self, value: Any) -> None:
        if not isinstance(value, Mapping):
            raise ValueError(f"not a mapping with {[name for name, _ in self.fields]}")  # noqa: TRY004 - as all that is wrong here

    def unpack(self, data: bytes) -> dict[str, Any]:
        """The value of `pack`. Raises ValueError or struct.error unless every byte fits."""
        if len(data) < self.head_bytes:
            raise ValueError(f"{len(data)} bytes, at least {self.head_bytes} needed")
        nulls = int.from_bytes(data[: self.bitmap_bytes], "little")
        if nulls >> len(self.fields):
            raise ValueError("a null bit is set beyond the last field")
        raws: dict[int, Any] = dict(
            zip(self.fixed, self._packer.unpack_from(data, self.bitmap_bytes), strict=True)
        )
        at = self.head_bytes
        for i in self.variable:
            end = at + 4 + int.from_bytes(data[at : at + 4], "big")
            if at + 4 > len(data) or end > len(data) or (nulls >> i & 1 and end != at + 4):
                raise ValueError(f"the length of field {self.fields[i][0]!r} does not fit")
            raws[i] = data[at + 4 : end]
            at = end
        if at != len(data):
            raise ValueError(f"{len(data) - at} bytes too many")
        row: dict[str, Any] = {}
        for i, ((name, _), kind) in enumerate(zip(self.fields, self.kinds, strict=True)):
            if nulls >> i & 1:
                row[name] = None
            else:
                row[name] = kind.value(raws[i]) if isinstance(kind, Fixed) else kind.unpack(raws[i])
        return row


def _kind(name: str, described: Kind) -> Fixed | Variable:
    try:
        return kind_from(described)
    except ConfigurationError as error:
        raise ConfigurationError(f"struct field {name!r}: {error.message}") from error


def pairs_of(description: Any) -> list[tuple[str, Kind]]:
    """``[[name, type], ...]`` as pairs. Raises ConfigurationError."""
    try:
        pairs = [(name, kind) for name, kind in description]
    except (TypeError, ValueError):
        pairs = [(None, None)]
    if any(not isinstance(name, str) or not isinstance(kind, str | dict) for name, kind in pairs):
        raise ConfigurationError(
            f"a struct is described as [[name, type], ...], not as {description!r}"
        )
    return pairs
