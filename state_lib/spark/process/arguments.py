"""Makes of values as functions would be given them what the store gives for such ones."""

from __future__ import annotations

import datetime as dt
from typing import Any

from pyspark.sql import types as T  # noqa: N812

from state_lib.spark.process.values import Convert, or_null


def in_utc(type_: T.DataType) -> Convert | None:
    """Makes of times in this machine's zone, as PySpark gives them, those in UTC; None: no time."""
    if isinstance(type_, T.TimestampType):
        return lambda value: value.astimezone(dt.UTC).replace(tzinfo=None)
    if isinstance(type_, T.ArrayType) and (inner := in_utc(type_.elementType)) is not None:
        each = or_null(inner)
        return lambda values: [each(v) for v in values]
    if isinstance(type_, T.MapType):
        key, item = in_utc(type_.keyType), in_utc(type_.valueType)
        if key is None and item is None:
            return None
        to_key, to_item = key or _same, or_null(item or _same)
        return lambda value: {to_key(k): to_item(v) for k, v in value.items()}
    if isinstance(type_, T.StructType):
        row, fields = T.Row(*type_.names), [in_utc(f.dataType) for f in type_.fields]
        if any(fields):
            made = [or_null(f or _same) for f in fields]
            return lambda value: row(*(f(v) for f, v in zip(made, value, strict=True)))
    return None


def from_arrow(type_: T.DataType) -> Convert | None:
    """Makes of what Arrow gives what `from_field` gives, `Row`s and dicts; None: it is the same."""
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
