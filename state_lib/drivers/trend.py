"""A straight line through measurements, and how far it can be trusted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import inf, sqrt

LEAST_POINTS = 3


@dataclass(frozen=True)
class Line:
    """``y = start + slope * x``.

    Attributes:
        slope: per unit of x.
        start: value at x = 0.
        error: standard error of the slope; what is left over from one point to the next is taken
            into account, as measurements of a queue are not independent of each other.
        scatter: standard deviation of what is left over.
    """

    slope: float
    start: float
    error: float
    scatter: float

    def at(self, x: float) -> float:
        """The line's value."""
        return self.start + self.slope * x


def fit(xs: Sequence[float], ys: Sequence[float]) -> Line:
    """Least squares. Fewer than three points, or all at one x, give a line of infinite error."""
    n = len(xs)
    mean_x, mean_y = sum(xs) / max(n, 1), sum(ys) / max(n, 1)
    width = sum((x - mean_x) ** 2 for x in xs)
    if n < LEAST_POINTS or width == 0:
        return Line(0.0, mean_y, inf, 0.0)
    slope = sum((x - mean_x) * (y - mean_y) for x, y in zip(xs, ys, strict=True)) / width
    start = mean_y - slope * mean_x
    left = [y - start - slope * x for x, y in zip(xs, ys, strict=True)]
    variance = sum(r * r for r in left) / (n - 2)
    together = sum(a * b for a, b in pairwise(left)) / (sum(r * r for r in left) or 1.0)
    memory = min(max(together, 0.0), 0.9)
    error = sqrt(variance / width * (1 + memory) / (1 - memory))
    return Line(slope, start, error, sqrt(variance))
