"""Entry by entry: what is missing, what should not be there, what is different. Pure functions."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, TypeVar

from state_lib.audit.report import EXAMPLES, Comparison
from state_lib.serdes.kinds import columns_of

K = TypeVar("K", bound=Hashable)
Row = Mapping[str, Any]
StoreKey = tuple[Any, int | None]
"""A key (of several columns a tuple), and the window's start in ms or None."""


def compare(
    kind: str,
    name: str,
    expected: Mapping[K, Any],
    actual: Mapping[K, Any],
    *,
    doubled: Sequence[str] = (),
    digests: tuple[str | None, str | None] = (None, None),
) -> Comparison:
    """Compare every entry.

    Args:
        kind: see `Comparison`.
        name: of the store or topic.
        expected: what the recompute gives.
        actual: what is there.
        doubled: what occurs again, each as a line to show.
        digests: expected, actual.
    """
    missing = [k for k in expected if k not in actual]
    unexpected = [k for k in actual if k not in expected]
    different = [k for k, v in expected.items() if k in actual and actual[k] != v]
    examples = [f"missing {shown(k)}: {shown(expected[k])}" for k in missing[:EXAMPLES]]
    examples += [f"unexpected {shown(k)}: {shown(actual[k])}" for k in unexpected[:EXAMPLES]]
    examples += [_difference(k, expected[k], actual[k]) for k in different[:EXAMPLES]]
    examples += doubled[:EXAMPLES]
    return Comparison(
        kind=kind,
        name=name,
        expected=len(expected),
        actual=len(actual),
        missing=len(missing),
        unexpected=len(unexpected),
        different=len(different),
        doubled=len(doubled),
        examples=tuple(examples),
        digest_expected=digests[0],
        digest_actual=digests[1],
    )


def rows_of(frame: Any) -> list[dict[str, Any]]:
    """Rows as plain dicts, from a Spark or pandas DataFrame, or from rows; nulls are None."""
    if hasattr(frame, "toArrow"):
        rows: list[dict[str, Any]] = frame.toArrow().to_pylist()
        return rows
    if hasattr(frame, "to_dict") and hasattr(frame, "columns"):
        frame = frame.astype(object).to_dict("records")
    return [{name: _plain(value) for name, value in dict(row).items()} for row in frame]


def by_key(rows: Iterable[Row]) -> dict[StoreKey, Row]:
    """Rows of a store by key and start."""
    out: dict[StoreKey, Row] = {}
    for row in rows:
        key = (hashed(row["key"]), row.get("start"))
        out[key] = {name: v for name, v in row.items() if name not in ("key", "start")}
    return out


def unordered(rows: Mapping[StoreKey, Row], value_serde: Any) -> Mapping[StoreKey, Row]:
    """Rows of a store with maps as dicts: in which order their entries came means nothing."""
    kinds = {name: kind for name, kind in columns_of(value_serde) if _has_map(kind)}
    if not kinds:
        return rows
    return {
        key: {**row, **{n: _as_dicts(of, row[n]) for n, of in kinds.items() if n in row}}
        for key, row in rows.items()
    }


def _has_map(kind: Any) -> bool:
    match kind:
        case {"map": _}:
            return True
        case {"array": of}:
            return _has_map(of)
        case {"struct": pairs}:
            return any(_has_map(of) for _, of in pairs)
    return False


def _as_dicts(kind: Any, value: Any) -> Any:
    try:
        match kind:
            case {"map": [_, of]} if value is not None:
                pairs = value.items() if isinstance(value, Mapping) else value
                return {key: _as_dicts(of, item) for key, item in pairs}
            case {"array": of} if value is not None:
                return [_as_dicts(of, item) for item in value]
            case {"struct": pairs} if isinstance(value, Mapping):
                kinds = dict(pairs)
                return {name: _as_dicts(kinds.get(name), item) for name, item in value.items()}
    except (TypeError, ValueError):  # another shape: reported as a difference
        pass
    return value


def hashed(key: Any) -> Any:
    """A key as one of a dict: of several columns, a tuple in their order."""
    return tuple(key.values()) if isinstance(key, Mapping) else key


def shown(value: Any) -> str:
    """For people: keys with their window's start as a time."""
    match value:
        case (key, None):
            return repr(key)
        case (key, int(start)) if not isinstance(key, int):
            return f"{key!r} @ {_time(start)}"
        case Mapping():
            return ", ".join(f"{name}={v!r}" for name, v in value.items())
    return repr(value)


def _difference(key: Any, expected: Any, actual: Any) -> str:
    if not isinstance(expected, Mapping) or not isinstance(actual, Mapping):
        return f"different {shown(key)}: expected {shown(expected)}, is {shown(actual)}"
    names = sorted({*expected, *actual})
    absent = object()
    parts = [
        f"{n}: expected {expected.get(n, '(no such field)')!r}, is "
        f"{actual.get(n, '(no such field)')!r}"
        for n in names
        if expected.get(n, absent) != actual.get(n, absent)
    ]
    return f"different {shown(key)}: {'; '.join(parts)}"


def _plain(value: Any) -> Any:
    """What is Numpy's and pandas' as Python's; NaN, NaT and NA as None."""
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if value is None or type(value).__name__ in ("NAType", "NaTType"):
        return None
    return None if isinstance(value, float) and math.isnan(value) else value


def _time(ms: int) -> str:
    try:
        return datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="seconds")
    except (ValueError, OverflowError, OSError):
        return f"{ms} ms"
