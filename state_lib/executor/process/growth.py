"""How much larger a value may be in an output's JSON than in its packed form."""

from __future__ import annotations

import orjson
from pyspark.sql import types as T  # noqa: N812

_TEXT = 8
"""Bound for text: one byte may be escaped by six."""
_TIME = 29
"""Bound for times: an ISO time with µs in quotes; nested, it may be packed as one digit."""


def growth(type_: T.DataType) -> int:
    """Most bytes in an output for one byte of a packed value.

    Arrays, maps and structs are packed as JSON without names, which outputs have: each byte of a
    struct's field may be written with the field's name.
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
