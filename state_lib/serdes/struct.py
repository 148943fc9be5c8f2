"""Packed struct: rows of typed, nullable fields; whole columns at a time without Python per row."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Any, cast

import numpy as np
import pyarrow as pa

from state_lib.errors import SerdeError
from state_lib.serdes.base import Described, as_binary, cast_to, reject
from state_lib.serdes.columns import (
    Bytes1,
    Ints,
    binary_array,
    binary_parts,
    gather,
    only_valid,
    ragged_index,
    spread,
    starts_of,
    valid_mask,
)
from state_lib.serdes.kinds import Fixed, Kind
from state_lib.serdes.layout import Layout, pairs_of

_NO_BYTES = (SerdeError, ValueError, OverflowError, struct.error)
_NO_ROW = (*_NO_BYTES, AttributeError, TypeError)
"""What is raised of bytes that are no row's, and of what is no row, here or in a field."""


class Struct(Described):
    """A row of named fields, each of one of `state_lib.serdes.kinds` and nullable.

    Values are mappings with exactly the declared fields; a column is a struct array. The layout
    is in `state_lib.serdes.layout`.

    Raises:
        ConfigurationError: no field, a name twice, or an unknown type.
    """

    def __init__(self, /, **fields: Kind) -> None:
        self._use(Layout(list(fields.items())))

    def _use(self, layout: Layout) -> None:
        self._layout = layout
        types = [kind.arrow_type for kind in layout.kinds]
        self.arrow_type = pa.struct(
            [pa.field(name, kind) for (name, _), kind in zip(layout.fields, types, strict=True)]
        )

    @classmethod
    def from_pairs(cls, description: Any) -> Struct:
        """From ``[[name, type], ...]``. Raises ConfigurationError."""
        made = cls.__new__(cls)
        made._use(Layout(pairs_of(description)))  # noqa: SLF001 - its own
        return made

    def describe(self) -> dict[str, list[list[Kind]]]:
        """``{"struct": [[name, type], ...]}``."""
        return {"struct": [list(pair) for pair in self._layout.fields]}

    def fits(self, value: Any) -> bool:
        """Whether it may be a row; see `state_lib.serdes.kinds.Variable`."""
        return isinstance(value, Mapping)

    def serialize(self, value: Mapping[str, Any]) -> bytes:
        """One row; SerdeError on missing, unknown or mistyped fields."""
        try:
            return self._layout.pack(value)
        except _NO_ROW as error:
            reject(self, value, str(error))

    def prefix(self, value: Mapping[str, Any]) -> bytes:
        """How rows begin that have no null and these first fields: fixed ones, then the others.

        Raises:
            SerdeError: other fields, or mistyped ones.
        """
        try:
            return self._layout.prefix(value)
        except _NO_ROW as error:
            reject(self, value, str(error))

    def deserialize(self, data: bytes) -> dict[str, Any]:
        """One row; SerdeError unless every byte fits the layout."""
        try:
            return self._layout.unpack(data)
        except _NO_BYTES as error:
            reject(self, data, str(error))

    def encode_arrow(self, array: pa.Array[Any]) -> pa.BinaryArray:
        """A struct array to bytes. A null row is a null, a row of nulls is not."""
        dense, valid = only_valid(cast_to(self, array, self.arrow_type))
        head = self._head(dense)
        if not self._layout.variable:
            lengths = np.full(len(dense), self._layout.head_bytes, np.int64)
            return binary_array(head.reshape(-1), spread(lengths, valid), valid)
        parts = [
            binary_parts(kind.encode_arrow(dense.field(i)))
            for i, kind in enumerate(self._layout.kinds)
            if not isinstance(kind, Fixed)
        ]
        lengths = np.full(len(dense), self._layout.head_bytes, np.int64)
        for _, _, sizes in parts:
            lengths += sizes + 4
        starts = starts_of(lengths)
        out = np.empty(int(starts[-1]), np.uint8)
        at = starts[:-1].copy()
        scatter(out, at, head)
        at += self._layout.head_bytes
        for data, begins, sizes in parts:
            scatter(out, at, sizes.astype(">u4").view(np.uint8).reshape(-1, 4))
            at += 4
            out[ragged_index(at, sizes)] = gather(data, begins, sizes)
            at += sizes
        return binary_array(out, spread(lengths, valid), valid)

    def _head(self, dense: Any) -> Bytes1:
        """Null bitmap and fixed fields of all rows, one row of bytes each."""
        out = np.zeros(len(dense), self._layout.dtype)
        for i, kind in enumerate(self._layout.kinds):
            child = dense.field(i)
            valid = valid_mask(child)
            if valid is not None:
                out["nulls"][:, i // 8] |= (~valid).astype(np.uint8) << np.uint8(i % 8)
            if isinstance(kind, Fixed) and len(child):
                raws = kind.raws(child)
                if valid is not None:
                    raws = np.where(valid.reshape(-1, *[1] * len(kind.shape)), raws, 0)
                out[f"f{i}"] = raws
        return out.view(np.uint8).reshape(len(dense), self._layout.head_bytes)

    def decode_arrow(self, array: pa.BinaryArray) -> pa.Array[Any]:
        """Bytes to a struct array; SerdeError on the first row that does not fit the layout."""
        dense, valid = only_valid(as_binary(self, array))
        data, starts, lengths = binary_parts(dense)
        layout = self._layout
        self._check(dense, lengths < layout.head_bytes)
        if layout.variable:
            raw = data[starts[:, None] + np.arange(layout.head_bytes)]
        else:
            self._check(dense, lengths != layout.head_bytes)
            raw = np.ascontiguousarray(gather(data, starts, lengths))
        head = raw.reshape(-1).view(layout.dtype)
        last = head["nulls"][:, -1]
        self._check(dense, (last >> np.uint8((len(layout.fields) - 1) % 8)) > 1)
        nulls = [
            (head["nulls"][:, i // 8] >> np.uint8(i % 8)) & 1 != 0
            for i in range(len(layout.fields))
        ]
        children: dict[int, Any] = {}
        at, ends = starts + layout.head_bytes, starts + lengths
        for i, kind in enumerate(layout.kinds):
            if isinstance(kind, Fixed):
                outside = kind.outside(head[f"f{i}"])
                if outside is not None:
                    self._check(dense, outside & ~nulls[i])
                children[i] = kind.column(head[f"f{i}"], nulls[i])
                continue
            self._check(dense, at + 4 > ends)
            sizes = data[at[:, None] + np.arange(4)].reshape(-1).view(">u4").astype(np.int64)
            at = at + 4
            self._check(dense, (at + sizes > ends) | (nulls[i] & (sizes != 0)))
            mask = ~nulls[i] if nulls[i].any() else None
            column = binary_array(gather(data, at, sizes), sizes, mask)
            children[i] = kind.decode_arrow(column)
            at = at + sizes
        self._check(dense, at != ends)
        ordered = [children[i] for i in range(len(layout.fields))]
        rows: Any = pa.StructArray.from_arrays(ordered, fields=list(self.arrow_type))
        if valid is None:
            return cast("pa.Array[Any]", rows)
        index = np.cumsum(valid) - 1
        taken: pa.Array[Any] = rows.take(pa.array(index, pa.int64(), mask=~valid))
        return taken

    def _check(self, dense: Any, wrong: Any) -> None:
        """Raise for the first wrong row what `deserialize` says of it."""
        if wrong.any():
            seen = dense[int(np.argmax(wrong))].as_py()
            self.deserialize(seen)
            reject(self, seen, "does not fit the layout")


def scatter(out: Bytes1, at: Ints, block: Bytes1) -> None:
    """Put row i of the block at ``out[at[i]:]``, column by column."""
    for column in range(block.shape[1]):
        out[at + column] = block[:, column]
