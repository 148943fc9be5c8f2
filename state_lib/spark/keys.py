"""A key as the bytes that its serde writes, made in Spark: they decide where a row belongs.

A key of several columns is a packed struct without nulls (`state_lib.serdes.layout`).
"""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812

from state_lib.serdes.kinds import Kind, columns_of, digits_of
from state_lib.spark.faults import fault

_LONG, _LENGTH, _DAYS = 16, 8, 8
"""Digits of a number of 64 bits, of a length, of a date."""
_VARIABLE = ("utf8", "bytes")


def key_bytes(serde: Kind, key: Column) -> Column:
    """A key of its serde's type as the serde writes it; null if a part of it is null."""
    if not isinstance(serde, dict):
        if serde in _VARIABLE:
            return key.cast("binary")
        return F.unhex(_fixed(serde, key))
    columns = columns_of(serde)
    parts = [F.lit("00" * ((len(columns) + 7) // 8))]
    parts += [_fixed(of, key.getField(n)) for n, of in columns if of not in _VARIABLE]
    for name, of in columns:
        if of in _VARIABLE:
            value = key.getField(name)
            length = F.hex(F.octet_length(value).cast("bigint"))
            parts += [F.lpad(length, _LENGTH, "0"), F.hex(value)]
    return F.unhex(F.concat(*parts))


def wrong_key(serde: Kind, key: Column, store: str) -> Column | None:
    """Why a key cannot be used, null if it can; None if that cannot be.

    ``not-utf8:<store>.<column>`` or ``out-of-range:`` of one of its columns (of a key of one
    column: ``key``), or ``null-key:`` of the first column of several that is null.
    """
    columns = columns_of(serde)
    parts = [(of, key.getField(name), name) for name, of in columns] or [(serde, key, "key")]
    reasons = [fault(of, part, f"{store}.{name}") for of, part, name in parts]
    reasons += [
        F.when(key.isNotNull() & key.getField(name).isNull(), f"null-key:{store}.{name}")
        for name, _ in columns
    ]
    found = [reason for reason in reasons if reason is not None]
    return F.coalesce(*found) if found else None


def _fixed(kind: Kind, value: Column) -> Column:
    """Digits, as many for each value."""
    match kind:
        case "int64":
            return _digits(value, _LONG)
        case "bool":
            return F.when(value, "01").when(~value, "00")
        case "date":
            return _digits(F.unix_date(value).cast("bigint") + F.lit(1 << 31), _DAYS)
        case "timestamp" | "timestamp_ntz":
            micros = F.unix_micros(value.cast("timestamp"))
            return _digits(micros.bitwiseXOR(F.lit(-(1 << 63))), _LONG)
    if digits_of(kind) is None:
        raise ValueError(f"{kind!r} is no kind of a key")
    whole = F.replace(value.cast("string"), F.lit(".")).cast("bigint")
    sign = F.when(whole < 0, "7" + "f" * (_LONG - 1)).when(whole >= 0, "8" + "0" * (_LONG - 1))
    return F.concat(sign, _digits(whole, _LONG))


def _digits(number: Column, count: int) -> Column:
    return F.lpad(F.hex(number), count, "0")
