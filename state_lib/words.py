"""Numbers as people read them."""

from __future__ import annotations

from math import inf

_KILO = 1000
_UNITS = ((86_400_000, "d"), (3_600_000, "h"), (60_000, "min"), (1000, "s"))


def size(count: float) -> str:
    """Bytes in decimal units."""
    for unit in ("B", "kB", "MB"):
        if count < _KILO:
            return f"{count:,.0f} {unit}"
        count /= _KILO
    return f"{count:,.1f} GB"


def span(ms: float) -> str:
    """A duration (ms) in its greatest fitting unit; ``for ever`` is -1, ``never`` infinite."""
    if ms == -1:
        return "for ever"
    if ms == inf:
        return "never"
    for length, unit in _UNITS:
        if abs(ms) >= length:
            return f"{ms / length:,.1f} {unit}".replace(".0 ", " ")
    return f"{ms:,.0f} ms"


def about(ms: float, earliest: float, latest: float) -> str:
    """A duration (ms) with its uncertainty: ``3 d (2 d to never)``."""
    return f"{span(ms)} ({span(earliest)} to {span(latest)})"


def some(numbers: list[int] | tuple[int, ...], most: int = 5) -> str:
    """A few of many: ``0, 3, 8 and 12 more``."""
    shown = ", ".join(map(str, numbers[:most]))
    return shown if len(numbers) <= most else f"{shown} and {len(numbers) - most} more"
