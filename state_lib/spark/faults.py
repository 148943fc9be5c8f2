"""What no serde can write, or no answer show, wherever in a value it is."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from operator import or_

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812

from state_lib.serdes.kinds import Kind

_Checks = dict[str, Callable[[Column], Column]]
"""By kind: whether a value is wrong."""
_DAYS = (-719_162, 2_932_896)
_MICROS = (-62_135_596_800_000_000, 253_402_300_799_999_999)
"""Since 1970, of the years 1 to 9999, which Python's times and ISO 8601 have."""


def fault(kind: Kind, value: Column, where: str) -> Column | None:
    """Why a value cannot be kept, null if it can: ``not-utf8:`` or ``out-of-range:``.

    None if nothing of that kind can be so.
    """
    whens = [
        F.when(_any(kind, value, checks), f"{word}:{where}")
        for word, checks in _REASONS.items()
        if _concern(checks, kind)
    ]
    return F.coalesce(*whens) if whens else None


def _beyond_days(value: Column) -> Column:
    return ~F.unix_date(value).between(*_DAYS)


def _beyond_moments(value: Column) -> Column:
    return ~F.unix_micros(value.cast("timestamp")).between(*_MICROS)


_REASONS: dict[str, _Checks] = {
    "not-utf8": {"utf8": lambda value: ~F.is_valid_utf8(value)},
    "out-of-range": {
        "date": _beyond_days,
        "timestamp": _beyond_moments,
        "timestamp_ntz": _beyond_moments,
    },
}


def _concern(checks: _Checks, kind: Kind) -> bool:
    """Whether any part of values of a kind is looked at."""
    match kind:
        case str():
            return kind in checks
        case {"struct": pairs}:
            return any(_concern(checks, of) for _, of in pairs)
        case {"array": of}:
            return _concern(checks, of)
        case {"map": [key, of]}:
            return _concern(checks, key) or _concern(checks, of)
    return False


def _any(kind: Kind, value: Column, checks: _Checks) -> Column:
    """Whether any part of a value is wrong, of a kind that has some."""
    parts: list[Column] = []
    match kind:
        case str():
            return checks[kind](value)
        case {"struct": pairs}:
            fields = [(name, of) for name, of in pairs if _concern(checks, of)]
            parts = [_any(of, value.getField(name), checks) for name, of in fields]
        case {"array": of}:
            parts = [_any_of(of, value, checks)]
        case {"map": [key, of]}:
            both = ((key, F.map_keys(value)), (of, F.map_values(value)))
            parts = [_any_of(one, values, checks) for one, values in both if _concern(checks, one)]
    return reduce(or_, parts)


def _any_of(kind: Kind, values: Column, checks: _Checks) -> Column:
    return F.exists(
        values,
        lambda value: F.coalesce(_any(kind, value, checks), F.lit(False)),  # noqa: FBT003
    )
