"""How figures grew from one report to the next. Pure functions."""

from __future__ import annotations

from collections.abc import Sequence
from math import isinf

from state_lib.capacity.model import Growth
from state_lib.checks.disk import Filling, filling
from state_lib.drivers.trend import fit
from state_lib.specs import DAY_MS


def growth(points: Sequence[tuple[int, int]], room: int | None = None) -> Growth:
    """A straight line through ``(time in ms, amount)``, oldest first.

    Args:
        points: at least three, else nothing is said.
        room: how much more there may be; None: without a bound.
    """
    if not points:
        return Growth()
    last = points[-1][0]
    line = fit([(at - last) / DAY_MS for at, _ in points], [float(n) for _, n in points])
    if isinf(line.error):
        return Growth()
    ahead = Filling() if room is None else filling(points, room)
    return Growth(
        round(line.slope, 3),
        round(2 * line.error, 3),
        _finite(ahead.days),
        _finite(ahead.earliest),
        _finite(ahead.latest),
    )


def _finite(days: float) -> float | None:
    return None if isinf(days) else round(days, 2)
