"""One value of a kind whose values all take as many bytes: numbers, dates and others."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
import pyarrow as pa

from state_lib.serdes.base import Described, as_binary, cast_to, reject
from state_lib.serdes.columns import binary_array, binary_parts, gather, only_valid, spread
from state_lib.serdes.kinds import FIXED, Fixed


class Single(Described):
    """Its bytes are those of a struct's field of that kind, with nothing around them."""

    def __init__(self, kind: Fixed) -> None:
        self._kind = kind
        self._packer = struct.Struct(f">{kind.code}")
        self.arrow_type: pa.DataType = kind.arrow_type

    def describe(self) -> str:
        """The kind's name."""
        return self._kind.name

    def serialize(self, value: Any) -> bytes:
        """SerdeError if it is of another kind."""
        if not self._kind.fits(value):
            reject(self, value, f"not {self._kind.name}")
        try:
            return self._packer.pack(self._kind.raw(value))
        except (ValueError, OverflowError, struct.error) as error:
            reject(self, value, str(error))

    def deserialize(self, data: bytes) -> Any:
        """SerdeError unless so many bytes, and where Python has no such value."""
        try:
            (raw,) = self._packer.unpack(data)
            return self._kind.value(raw)
        except (ValueError, OverflowError, struct.error) as error:
            reject(self, data, str(error))

    def encode_arrow(self, array: pa.Array[Any]) -> pa.BinaryArray:
        """As a whole column."""
        dense, valid = only_valid(cast_to(self, array, self.arrow_type))
        raws = self._kind.raws(dense).astype(self._kind.dtype)
        lengths = np.full(len(dense), self._packer.size, np.int64)
        data = np.ascontiguousarray(raws).view(np.uint8).reshape(-1)
        return binary_array(data, spread(lengths, valid), valid)

    def decode_arrow(self, array: pa.BinaryArray) -> pa.Array[Any]:
        """As a whole column; SerdeError on the first element of another length or size."""
        dense, valid = only_valid(as_binary(self, array))
        data, starts, lengths = binary_parts(dense)
        wrong = np.flatnonzero(lengths != self._packer.size)
        if len(wrong):
            self.deserialize(dense[int(wrong[0])].as_py())
        count = len(array)
        raws = np.zeros((count, *self._kind.shape), self._kind.dtype)
        body = np.ascontiguousarray(gather(data, starts, lengths)).view(self._kind.dtype)
        raws[slice(None) if valid is None else valid] = body.reshape(-1, *self._kind.shape)
        nulls = np.zeros(count, np.bool_) if valid is None else ~valid
        outside = self._kind.outside(raws)
        if outside is not None and (outside & ~nulls).any():
            self.deserialize(array[int(np.argmax(outside & ~nulls))].as_py())
        column: pa.Array[Any] = self._kind.column(raws, nulls)
        return column


class Int64(Single):
    """A signed 64-bit integer, as Kafka's LongSerde writes it. Negative ones sort last."""

    def __init__(self) -> None:
        super().__init__(FIXED["int64"])


class Float64(Single):
    """An IEEE 754 double, as Kafka's DoubleSerde writes it."""

    def __init__(self) -> None:
        super().__init__(FIXED["float64"])
