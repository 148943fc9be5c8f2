"""Serdes of one value of any length: bytes, text and JSON."""

from __future__ import annotations

from typing import Any, ClassVar

import orjson
import pyarrow as pa

from state_lib.serdes.base import Described, as_binary, cast_to, reject


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

    def fits(self, value: Any) -> bool:
        """See `state_lib.serdes.kinds.Variable`."""
        return isinstance(value, bytes)

    def serialize(self, value: bytes) -> bytes:
        """The value itself; SerdeError if it is not bytes."""
        return bytes(value) if self.fits(value) else reject(self, value, "not bytes")

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

    def fits(self, value: Any) -> bool:
        """See `state_lib.serdes.kinds.Variable`."""
        return isinstance(value, str)

    def serialize(self, value: str) -> bytes:
        """UTF-8; SerdeError if it is not a string, or holds a lone surrogate."""
        if not self.fits(value):
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
