"""Serdes of one value: bytes, text, numbers and JSON."""

from __future__ import annotations

import struct
from typing import Any, ClassVar

import numpy as np
import orjson
import pyarrow as pa

from state_lib.serdes.base import Described, as_binary, cast_to, reject
from state_lib.serdes.columns import binary_array, binary_parts, gather, only_valid, spread, view_of

_WIDTH = 8  # bytes of a number


class _Plain(Described):
    """A serde without parameters: its description is its name."""

    name: ClassVar[str]
    arrow_type: pa.DataType

    def describe(self) -> str:
        """The name."""
        return self.name


class Bytes(_Plain):
    """Bytes as they are."""

    name = "bytes"
    arrow_type = pa.binary()

    def serialize(self, value: bytes) -> bytes:
        """The value itself; SerdeError if it is not bytes."""
        return value if type(value) is bytes else reject(self, value, "not bytes")

    def deserialize(self, data: bytes) -> bytes:
        """The bytes themselves."""
        return data

    def encode_arrow(self, array: pa.Array[Any]) -> pa.BinaryArray:
        """The column itself, cast to binary if need be."""
        return as_binary(self, array)

    def decode_arrow(self, array: pa.BinaryArray) -> pa.Array[Any]:
        """The column itself."""
        return as_binary(self, array)


class Utf8(_Plain):
    """Text as UTF-8, as Kafka's StringSerde writes it."""

    name = "utf8"
    arrow_type = pa.string()

    def serialize(self, value: str) -> bytes:
        """UTF-8; SerdeError if it is not a string, or holds a lone surrogate."""
        if not isinstance(value, str):
            reject(self, value, "not a string")
        try:
            return value.encode()
        except UnicodeEncodeError as error:
            reject(self, value, str(error))

    def deserialize(self, data: bytes) -> str:
        """Strictly decoded; SerdeError on malformed UTF-8."""
        try:
            return data.decode()
        except UnicodeDecodeError as error:
            reject(self, data, str(error))

    def encode_arrow(self, array: pa.Array[Any]) -> pa.BinaryArray:
        """The same buffers as binary."""
        return as_binary(self, cast_to(self, array, pa.string()))

    def decode_arrow(self, array: pa.BinaryArray) -> pa.Array[Any]:
        """The same buffers as string, checked to be UTF-8."""
        return cast_to(self, as_binary(self, array), pa.string())


class Json(_Plain):
    """Any JSON value as compact UTF-8 JSON with sorted keys: equal values, equal bytes.

    In columns it is JSON text (arrow type string): checked on the way in, byte for byte otherwise.
    """

    name = "json"
    arrow_type = pa.string()

    def serialize(self, value: Any) -> bytes:
        """Compact JSON; SerdeError if the value has no JSON form."""
        try:
            return orjson.dumps(value, option=orjson.OPT_SORT_KEYS)
        except TypeError as error:
            reject(self, value, str(error))

    def deserialize(self, data: bytes) -> Any:
        """The parsed value; SerdeError if it is not JSON."""
        try:
            return orjson.loads(data)
        except orjson.JSONDecodeError as error:
            reject(self, data, str(error))

    def encode_arrow(self, array: pa.Array[Any]) -> pa.BinaryArray:
        """JSON text as binary; SerdeError on the first element that is not JSON (parses each)."""
        out = as_binary(self, cast_to(self, array, pa.string()))
        for data in out.to_pylist():
            if data is not None:
                self.deserialize(data)
        return out

    def decode_arrow(self, array: pa.BinaryArray) -> pa.Array[Any]:
        """The text, checked to be UTF-8 but not parsed."""
        return cast_to(self, as_binary(self, array), pa.string())


class _Number(_Plain):
    """Eight bytes, big-endian."""

    _format: ClassVar[str]
    _little: ClassVar[str]
    _big: ClassVar[str]

    def _pack(self, value: float) -> bytes:
        try:
            return struct.pack(self._format, value)
        except (struct.error, OverflowError, TypeError) as error:
            reject(self, value, str(error))

    def _unpack(self, data: bytes) -> Any:
        if len(data) != _WIDTH:
            reject(self, data, f"not {_WIDTH} bytes but {len(data)}")
        return struct.unpack(self._format, data)[0]

    def encode_arrow(self, array: pa.Array[Any]) -> pa.BinaryArray:
        """Byte-swapped as a whole column."""
        dense, valid = only_valid(cast_to(self, array, self.arrow_type))
        values = view_of(dense, self._little)
        lengths = spread(np.full(len(dense), _WIDTH, np.int64), valid)
        return binary_array(values.astype(self._big).view(np.uint8), lengths, valid)

    def decode_arrow(self, array: pa.BinaryArray) -> pa.Array[Any]:
        """Byte-swapped as a whole column; SerdeError on the first element not of 8 bytes."""
        dense, valid = only_valid(as_binary(self, array))
        data, starts, lengths = binary_parts(dense)
        wrong = np.flatnonzero(lengths != _WIDTH)
        if len(wrong):
            self._unpack(dense[int(wrong[0])].as_py())
        values = gather(data, starts, lengths).view(self._big).astype(self._little)
        if valid is None:
            return pa.array(values, self.arrow_type)
        full = np.zeros(len(valid), self._little)
        full[valid] = values
        return pa.array(full, self.arrow_type, mask=~valid)


class Int64(_Number):
    """A signed 64-bit integer, as Kafka's LongSerde writes it. Negative ones sort last."""

    name = "int64"
    arrow_type = pa.int64()
    _format, _little, _big = ">q", "<i8", ">i8"

    def serialize(self, value: int) -> bytes:
        """Eight bytes; SerdeError if it is not an int of 64 bits."""
        if type(value) is not int:
            reject(self, value, "not an integer")
        return self._pack(value)

    def deserialize(self, data: bytes) -> int:
        """SerdeError unless eight bytes."""
        return int(self._unpack(data))


class Float64(_Number):
    """An IEEE 754 double, as Kafka's DoubleSerde writes it."""

    name = "float64"
    arrow_type = pa.float64()
    _format, _little, _big = ">d", "<f8", ">f8"

    def serialize(self, value: float) -> bytes:
        """Eight bytes; SerdeError if it is not a number."""
        if type(value) not in (int, float):
            reject(self, value, "not a number")
        return self._pack(value)

    def deserialize(self, data: bytes) -> float:
        """SerdeError unless eight bytes."""
        return float(self._unpack(data))
