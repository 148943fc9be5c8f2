"""Kinds within kinds: structs, arrays and maps as fields of a packed struct.

::

    struct   as `state_lib.serdes.layout` has it
    array    count (4 bytes, big-endian), the length of each element (4 bytes), then the elements
    map      the same, its entries in the order in which they came

An element is a struct of one field, an entry one of two, so each knows its nulls.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from state_lib.errors import ConfigurationError
from state_lib.serdes.base import Described, as_binary, cast_to, reject
from state_lib.serdes.columns import (
    binary_array,
    binary_parts,
    gather,
    only_valid,
    ragged_index,
    spread,
    starts_of,
)
from state_lib.serdes.kinds import Kind, Variable
from state_lib.serdes.struct import Struct, scatter

_NUMBER = 4  # bytes of a count or a length
ELEMENT, KEY, VALUE = "element", "key", "value"


def nested_from(described: dict[str, Any]) -> Variable:
    """The kind that a description means. Raises ConfigurationError for another one."""
    match described:
        case {"struct": pairs, **rest} if not rest:
            return Struct.from_pairs(pairs)
        case {"array": kind, **rest} if not rest:
            return _Arrays(described, Struct(element=kind))
        case {"map": [key, value], **rest} if not rest and isinstance(key, str):
            return _Maps(described, Struct(key=key, value=value))
    raise ConfigurationError(
        f"no type {described!r} is known: write {{'struct': [[name, type], ...]}}, "
        "{'array': type} or {'map': [type, type]}, the first of them no struct, array or map",
        seen=described,
    )


class _Arrays(Described):
    """Lists. ``rows``: what each element is kept as."""

    def __init__(self, described: Kind, rows: Struct) -> None:
        self._described, self._rows = described, rows
        self.arrow_type: pa.DataType = self._type()

    def describe(self) -> Kind:
        return self._described

    def fits(self, value: Any) -> bool:
        return isinstance(value, list | tuple)

    def serialize(self, value: Any) -> bytes:
        rows = [self._rows.serialize(row) for row in self._listed(value)]
        numbers = (len(rows), *map(len, rows))
        return struct.pack(f">{len(numbers)}I", *numbers) + b"".join(rows)

    def deserialize(self, data: bytes) -> Any:
        try:
            (count,) = struct.unpack_from(">I", data)
            sizes = struct.unpack_from(f">{count}I", data, _NUMBER)
        except struct.error as error:
            reject(self, data, str(error))
        at, rows = _NUMBER * (1 + count), []
        if at + sum(sizes) != len(data):
            reject(self, data, f"{at + sum(sizes)} bytes needed")
        for size in sizes:
            rows.append(self._rows.deserialize(data[at : at + size]))
            at += size
        return [self._given(row) for row in rows]

    def encode_arrow(self, array: Any) -> pa.BinaryArray:
        dense, valid = only_valid(cast_to(self, array, self.arrow_type))
        if not len(dense):
            return binary_array(np.empty(0, np.uint8), spread(np.zeros(0, np.int64), valid), valid)
        offsets = dense.offsets.to_numpy(zero_copy_only=False).astype(np.int64)
        first = int(offsets[0])
        counts, offsets = np.diff(offsets), offsets - first
        encoded = self._rows.encode_arrow(self._elements(dense).slice(first, int(offsets[-1])))
        data, starts, sizes = binary_parts(encoded)
        body = np.diff(starts_of(sizes)[offsets])
        heads = _NUMBER * (1 + counts)
        lengths = heads + body
        at = starts_of(lengths)
        out = np.empty(int(at[-1]), np.uint8)
        scatter(out, at[:-1], counts.astype(">u4").view(np.uint8).reshape(-1, _NUMBER))
        numbers = ragged_index(at[:-1] + _NUMBER, _NUMBER * counts)
        out[numbers] = sizes.astype(">u4").view(np.uint8)
        out[ragged_index(at[:-1] + heads, body)] = gather(data, starts, sizes)
        return binary_array(out, spread(lengths, valid), valid)

    def decode_arrow(self, array: pa.BinaryArray) -> Any:
        dense, valid = only_valid(as_binary(self, array))
        data, starts, lengths = binary_parts(dense)
        self._check(dense, lengths < _NUMBER)
        counts = data[starts[:, None] + np.arange(_NUMBER)].reshape(-1).view(">u4").astype(np.int64)
        heads = _NUMBER * (1 + counts)
        self._check(dense, heads > lengths)
        raw = np.ascontiguousarray(gather(data, starts + _NUMBER, _NUMBER * counts))
        sizes = raw.view(">u4").astype(np.int64)
        offsets = starts_of(counts)
        body = np.diff(starts_of(sizes)[offsets])
        self._check(dense, heads + body != lengths)
        rows = binary_array(gather(data, starts + heads, body), sizes, None)
        made = self._array(pa.array(offsets, pa.int32()), self._rows.decode_arrow(rows))
        if valid is None:
            return made
        index = np.cumsum(valid) - 1
        return made.take(pa.array(index, pa.int64(), mask=~valid))

    def _check(self, dense: Any, wrong: Any) -> None:
        """Raise for the first wrong row what `deserialize` says of it."""
        if wrong.any():
            seen = dense[int(np.argmax(wrong))].as_py()
            self.deserialize(seen)
            reject(self, seen, "does not fit")

    def _type(self) -> pa.DataType:
        return pa.list_(self._rows.arrow_type.field(0))

    def _listed(self, value: Any) -> list[dict[str, Any]]:
        return [{ELEMENT: item} for item in value]

    def _given(self, row: dict[str, Any]) -> Any:
        return row[ELEMENT]

    def _elements(self, dense: Any) -> Any:
        """All of them as rows, also those that a slice leaves out."""
        return pa.StructArray.from_arrays([dense.values], fields=list(self._rows.arrow_type))

    def _array(self, offsets: Any, rows: Any) -> Any:
        return pa.ListArray.from_arrays(offsets, rows.field(0), type=self.arrow_type)


class _Maps(_Arrays):
    """In Python lists of pairs, as Arrow gives them."""

    def fits(self, value: Any) -> bool:
        return isinstance(value, list | tuple | Mapping)

    def _type(self) -> pa.DataType:
        key, value = list(self._rows.arrow_type)
        return pa.map_(key.type, value.type)

    def _listed(self, value: Any) -> list[dict[str, Any]]:
        pairs = value.items() if isinstance(value, Mapping) else value
        return [{KEY: key, VALUE: item} for key, item in pairs]

    def _given(self, row: dict[str, Any]) -> Any:
        return row[KEY], row[VALUE]

    def _elements(self, dense: Any) -> Any:
        fields = list(self._rows.arrow_type)
        return pa.StructArray.from_arrays([dense.keys, dense.items], fields=fields)

    def _array(self, offsets: Any, rows: Any) -> Any:
        return pa.MapArray.from_arrays(offsets, rows.field(0), rows.field(1), type=self.arrow_type)
