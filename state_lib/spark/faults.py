"""What no serde can write, or no answer show, wherever in a value it is."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from operator import or_

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812

from state_lib.serdes.kinds import Kind

_Wrong = Callable[[str, Column], Column | None]
_DAYS = (-719_162, 2_932_896)
_MICROS = (-62_135_596_800_000_000, 253_402_300_799_999_999)
"""Since 1970, of the years 1 to 9999, which Python's times and ISO 8601 have."""


def fault(kind: Kind, value: Column, where: str) -> Column | None:
    """Why a value cannot be kept, null if it can: ``not-utf8:`` or ``out-of-range:``.

    None if nothing of that kind can be so.
    """
    reasons = {"not-utf8": _not_utf8, "out-of-range": _out_of_range}
    found = [(word, _any(kind, value, wrong)) for word, wrong in reasons.items()]
    whens = [F.when(wrong, f"{word}:{where}") for word, wrong in found if wrong is not None]
    return F.coalesce(*whens) if whens else None


def _not_utf8(kind: str, value: Column) -> Column | None:
    return ~F.is_valid_utf8(value) if kind == "utf8" else None


def _out_of_range(kind: str, value: Column) -> Column | None:
    match kind:
        case "date":
            return ~F.unix_date(value).between(*_DAYS)
        case "timestamp" | "timestamp_ntz":
            return ~F.unix_micros(value.cast("timestamp")).between(*_MICROS)
    return None


def _any(kind: Kind, value: Column, wrong: _Wrong) -> Column | None:
    """Whether any part of a value is wrong; None if none can be."""
    parts: list[Column | None] = []
    match kind:
        case str():
            return wrong(kind, value)
        case {"struct": pairs}:
            parts = [_any(of, value.getField(name), wrong) for name, of in pairs]
        case {"array": of}:
            parts = [_any_of(of, value, wrong)]
        case {"map": [key, of]}:
            keys, values = F.map_keys(value), F.map_values(value)
            parts = [_any_of(key, keys, wrong), _any_of(of, values, wrong)]
    found = [part for part in parts if part is not None]
    return reduce(or_, found) if found else None


def _any_of(kind: Kind, values: Column, wrong: _Wrong) -> Column | None:
    if _any(kind, F.lit(None), wrong) is None:
        return None

    def is_wrong(value: Column) -> Column:
        found = _any(kind, value, wrong)
        no = F.lit(False)  # noqa: FBT003
        return no if found is None else F.coalesce(found, no)

    return F.exists(values, is_wrong)
