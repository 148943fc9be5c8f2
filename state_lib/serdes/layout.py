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
        self._names = set(names)
        self._values = [
            (name, kind.value if isinstance(kind, Fixed) else kind.deserialize)
            for name, kind in zip(names, self.kinds, strict=True)
        ]

    def pack(self, value: Mapping[str, Any]) -> bytes:
        """One value. Raises ValueError, SerdeError or struct.error saying what is wrong with it."""
        self._require_mapping(value)
        if value.keys() != self._names:
            raise ValueError(f"fields {sorted(value)} instead of {[n for n, _ in self.fields]}")
        nulls, parts = 0, list[Any]()
        for i, (name, _) in enumerate(self.fields):
            item = value[name]
            nulls |= (item is None) << i
            parts.append(self._part(i, item))
        head = nulls.to_bytes(self.bitmap_bytes, "little")
        fixed = self._packer.pack(*(parts[i] for i in self.fixed))
        return b"".join([head, fixed, *(parts[i] for i in self.variable)])

    def prefix(self, value: Mapping[str, Any]) -> bytes:
        """How all values begin that have no null and, in the fields that come first, these.

        Raises:
            ValueError, SerdeError: other fields, or of another type.
        """
        self._require_mapping(value)
        order = [*self.fixed, *self.variable]
        mine = order[: len(value)]
        if {self.fields[i][0] for i in mine} != value.keys():
            names = [self.fields[i][0] for i in order]
            raise ValueError(f"{sorted(value)} are not the first of {names}")
        parts = [bytes(self.bitmap_bytes)]
        for i in mine:
            (name, described), kind = self.fields[i], self.kinds[i]
            if value[name] is None:
                raise ValueError(f"field {name!r} is not {described}: None")
            part = self._part(i, value[name])
            parts.append(struct.pack(f">{kind.code}", part) if isinstance(kind, Fixed) else part)
        return b"".join(parts)

    def _part(self, i: int, item: Any) -> Any:
        """A field as it is packed: what `struct` packs, or its length and its bytes."""
        kind = self.kinds[i]
        if item is not None and not kind.fits(item):
            name, described = self.fields[i]
            raise ValueError(f"field {name!r} is not {described}: {item!r}")
        if isinstance(kind, Fixed):
            return kind.zero if item is None else kind.raw(item)
        data = b"" if item is None else kind.serialize(item)
        return len(data).to_bytes(4, "big") + data

    def _require_mapping(self, value: Any) -> None:
        if not isinstance(value, Mapping):
            raise ValueError(f"not a mapping with {[name for name, _ in self.fields]}")  # noqa: TRY004 - as all that is wrong here

    def unpack(self, data: bytes) -> dict[str, Any]:
        """The value of `pack`. Raises as that unless every byte fits."""
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
        return {
            name: None if nulls >> i & 1 else value(raws[i])
            for i, (name, value) in enumerate(self._values)
        }


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
