"""The contract of a serde."""

from __future__ import annotations

from typing import Any, NoReturn, Protocol, TypeVar, cast

import pyarrow as pa

from state_lib.errors import SerdeError

T = TypeVar("T")
_SHOWN = 80  # characters of a value in a message


class Serde(Protocol[T]):
    """Converts one type to the bytes of a key or value, one at a time or a column at a time.

    A null is no value: it is never passed to `serialize` or `deserialize`, and in columns it
    stays null. Both ways produce the same bytes. Serdes hold no state and may be shared.
    """

    @property
    def arrow_type(self) -> pa.DataType:
        """The type that `encode_arrow` takes and `decode_arrow` gives."""
        ...

    def describe(self) -> Any:
        """JSON-able description from which `serde_from` rebuilds an equal serde."""
        ...

    def serialize(self, value: T) -> bytes:
        """Raises SerdeError, naming the serde and the value seen, for a value of another type."""
        ...

    def deserialize(self, data: bytes) -> T:
        """Raises SerdeError, naming the serde and the bytes seen, unless `serialize` made them."""
        ...

    def encode_arrow(self, array: pa.Array[Any]) -> pa.BinaryArray:
        """Encode a column of ``arrow_type`` (or what casts to it). Raises SerdeError."""
        ...

    def decode_arrow(self, array: pa.BinaryArray) -> pa.Array[Any]:
        """Decode a column into ``arrow_type``. Raises SerdeError on the first bad element."""
        ...


class Described:
    """Equality, hash and repr from the description."""

    def describe(self) -> Any:
        """See `Serde.describe`."""
        raise NotImplementedError

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Described) and self.describe() == other.describe()

    def __hash__(self) -> int:
        return hash(repr(self))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.describe()!r})"


def reject(serde: Any, seen: object, why: str) -> NoReturn:
    """Raise a SerdeError that names the serde and (the start of) what was seen."""
    text = repr(seen)
    shown = text if len(text) <= _SHOWN else text[:_SHOWN] + "…"
    description = serde.describe() if isinstance(serde, Described) else serde
    raise SerdeError(f"serde {description!r}: {why}; saw {shown}", serde=description, seen=shown)


def cast_to(serde: Any, array: Any, target: pa.DataType) -> pa.Array[Any]:
    """One contiguous array of ``target`` type; raises SerdeError where a value does not fit."""
    try:
        if isinstance(array, pa.ChunkedArray):
            array = array.combine_chunks()
        out: pa.Array[Any] = array if array.type == target else array.cast(target)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError) as error:
        reject(serde, array.type, f"not a column of {target}: {error}")
    return out


def as_binary(serde: Any, array: Any) -> pa.BinaryArray:
    """`cast_to` binary."""
    out: Any = cast_to(serde, array, pa.binary())
    return cast("pa.BinaryArray", out)
