"""Lives of processes, and whether their memory stays flat."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

WARM_S = 90.0
"""What a process loads, it loads in its first seconds."""
LEAST_S = 90.0
"""A life that is seen for less than that after it is warm tells nothing."""
MOST_MIB_PER_MIN, NOISE_MIB = 5.0, 25.0
"""More than both is no noise: as a slope, and as growth in the time that was seen."""
OUTSIDE_HEAP_MIB = 768.0
"""What a JVM takes beside its heap: a heap grows to its bound by design, and no further."""


@dataclass
class Life:
    """One process: its name, when it began (wall time, s), its bound and what it had resident.

    ``samples``: wall time (s) and MiB. ``heap``: of a JVM, in MiB.
    """

    name: str
    began: float
    heap: float | None = None
    samples: list[tuple[float, float]] = field(default_factory=list)

    def warm(self, since: float) -> list[tuple[float, float]]:
        """Samples of the time from then on in which it was warm; none if that is too short."""
        found = [one for one in self.samples if one[0] >= max(since, self.began + WARM_S)]
        return found if found and found[-1][0] - found[0][0] >= LEAST_S else []


@dataclass(frozen=True)
class Row:
    """All lives of one name; MiB, MiB/min and minutes. ``verdict`` is for people."""

    name: str
    lives: int
    peak: float
    last: float
    slope: float | None
    minutes: float
    verdict: str
    bad: bool


def row_of(name: str, lives: Sequence[Life], since: float) -> Row:
    """All lives of one name; slopes are of the time from then on (wall time, s)."""
    peak = max(mib for life in lives for _, mib in life.samples)
    last = max(lives, key=lambda life: life.samples[-1][0]).samples[-1][1]
    warm = [samples for life in lives if (samples := life.warm(since))]
    minutes = sum(one[-1][0] - one[0][0] for one in warm) / 60
    slope = pooled(warm) * 60 if warm else None
    heaps = [life.heap for life in lives if life.heap is not None]
    if heaps:
        bound = max(heaps) + OUTSIDE_HEAP_MIB
        verdict, bad = f"at most {bound:,.0f}", peak > bound
    elif slope is None:
        verdict, bad = "too short", False
    else:
        bad = slope > MOST_MIB_PER_MIN and slope * minutes > NOISE_MIB
        verdict = "GROWS" if bad else "flat"
    return Row(name, len(lives), peak, last, slope, minutes, verdict, bad)


def pooled(lives: Sequence[Sequence[tuple[float, float]]]) -> float:
    """One slope of several lives, each about its own mean (MiB/s), by least squares."""
    above = below = 0.0
    for samples in lives:
        middle = sum(t for t, _ in samples) / len(samples)
        mean = sum(mib for _, mib in samples) / len(samples)
        above += sum((t - middle) * (mib - mean) for t, mib in samples)
        below += sum((t - middle) ** 2 for t, _ in samples)
    return above / below if below else 0.0
