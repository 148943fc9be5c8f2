"""How much larger a value may be in an output's JSON than where it is kept."""

from __future__ import annotations

import orjson
from pyspark.sql import types as T  # noqa: N812

_TEXT = 8
"""One byte of text may be escaped by six."""
_TIME = 29
"""An ISO moment with µs in quotes. Within arrays, maps and structs it may be kept as one digit."""


def growth(type_: T.DataType) -> int:
    """How many bytes of an output one of a packed value may become, at most.

    Arrays, maps and structs are kept as JSON without names, which outputs have: so each byte of a
    struct's field may come with its name.
    """
    if isinstance(type_, T.StructType):
        named = [len(orjson.dumps(f.name)) + 1 + growth(f.dataType) for f in type_.fields]
        return max(named, default=_TEXT)
    if isinstance(type_, T.ArrayType):
        return growth(type_.elementType)
    if isinstance(type_, T.MapType):
        return max(growth(type_.keyType), growth(type_.valueType))
    if isinstance(type_, T.TimestampType | T.TimestampNTZType | T.DateType):
        return _TIME
    return _TEXT
