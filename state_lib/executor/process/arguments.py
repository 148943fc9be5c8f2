"""Converts rows' values for functions to the form in which stores return values."""

from __future__ import annotations

from typing import Any

from pyspark.sql import types as T  # noqa: N812

from state_lib.executor.process.values import Convert, or_null


def without_zone(type_: T.DataType) -> T.DataType | None:
    """The type with times without a zone in place of timestamps; None: it has no timestamps.

    PySpark converts timestamps to the zone of the worker's machine, where one hour a year occurs
    twice. Cast to this type by a session in UTC, they are in UTC on any machine.
    """
    if isinstance(type_, T.TimestampType):
        return T.TimestampNTZType()
    if isinstance(type_, T.ArrayType) and (inner := without_zone(type_.elementType)) is not None:
        return T.ArrayType(inner, type_.containsNull)
    if isinstance(type_, T.MapType):
        key, item = without_zone(type_.keyType), without_zone(type_.valueType)
        if key is not None or item is not None:
            kinds = key or type_.keyType, item or type_.valueType
            return T.MapType(*kinds, type_.valueContainsNull)
    if isinstance(type_, T.StructType):
        made = [without_zone(field.dataType) for field in type_.fields]
        if any(kind is not None for kind in made):
            pairs = zip(type_.fields, made, strict=True)
            return T.StructType(
                [T.StructField(f.name, k or f.dataType, f.nullable) for f, k in pairs]
            )
    return None


def from_arrow(type_: T.DataType) -> Convert | None:
    """A conversion of Arrow's values to those of `from_field`; None if they are the same."""
    if isinstance(type_, T.StructType):
        row, names = T.Row(*type_.names), type_.names
        fields = [or_null(from_arrow(f.dataType) or _same) for f in type_.fields]
        return lambda value: row(*(f(value[n]) for n, f in zip(names, fields, strict=True)))
    if isinstance(type_, T.MapType):
        key = from_arrow(type_.keyType) or _same
        item = or_null(from_arrow(type_.valueType) or _same)
        return lambda pairs: {key(k): item(v) for k, v in pairs}
    if isinstance(type_, T.ArrayType) and (inner := from_arrow(type_.elementType)) is not None:
        each = or_null(inner)
        return lambda values: [each(v) for v in values]
    return None


def _same(value: Any) -> Any:
    return value
