"""Durations as people write them: ``"1 hour"``, ``"90 seconds"``, a timedelta, or ms."""

from __future__ import annotations

import re
from datetime import timedelta

from state_lib.errors import ConfigurationError

Duration = str | timedelta | int
_UNITS = {"ms": 1, "millisecond": 1, "second": 1000, "minute": 60_000, "hour": 3_600_000}
_UNITS |= {"day": 86_400_000, "week": 604_800_000}


def to_ms(duration: Duration) -> int:
    """Milliseconds of a duration.

    Raises:
        ConfigurationError: text that is not ``<number> <unit>``, or a negative duration.
    """
    if isinstance(duration, timedelta):
        ms = int(duration.total_seconds() * 1000)
    elif isinstance(duration, int):
        ms = duration
    else:
        match = re.fullmatch(r"\s*(\d+)\s*([a-z]+?)s?\s*", duration.replace("ms", "millisecond"))
        if match is None or match[2] not in _UNITS:
            raise ConfigurationError(
                f"{duration!r} is not a duration: write '<number> <unit>' with a unit of "
                f"{', '.join(_UNITS)}",
            )
        ms = int(match[1]) * _UNITS[match[2]]
    if ms < 0:
        raise ConfigurationError(f"a duration cannot be negative: {duration!r}")
    return ms
