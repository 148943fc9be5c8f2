"""How full hosts' disks are, when they will be full, and whether a restore fits on them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import inf

from state_lib.checks.facts import Facts, HostSeen
from state_lib.checks.verdict import Level, Verdict
from state_lib.drivers.trend import fit
from state_lib.restore.candidates import SPACE_FULL
from state_lib.specs import DAY_MS
from state_lib.words import about, size

NAME = "disk"
_NEAR, _FULL = 0.85, 0.95
_SOON_DAYS, _NOW_DAYS = 7.0, 1.0
_LEAST_POINTS, _LEAST_MS = 10, 1_800_000
_EARLY, _LONG_MS = 0.7, 21_600_000
"""Of a disk with so much room the load of a backlog is no trend."""


@dataclass(frozen=True)
class Filling:
    """When a disk will be full, in days from now: probably, and within two standard errors.

    All infinite where it does not fill, or nothing can be said yet.
    """

    days: float = inf
    earliest: float = inf
    latest: float = inf

    def __str__(self) -> str:
        """For people."""
        if self.days == inf:
            return "not filling"
        return f"full in {about(*(d * DAY_MS for d in (self.days, self.earliest, self.latest)))}"


def filling(used: Sequence[tuple[int, int]], free: int, least_ms: int = _LEAST_MS) -> Filling:
    """A straight line through ``(time in ms, bytes used)``; unknown where the points are few.

    Args:
        used: oldest first.
        free: bytes.
        least_ms: over which time they must be spread.
    """
    if len(used) < _LEAST_POINTS or used[-1][0] - used[0][0] < least_ms:
        return Filling()
    last = used[-1][0]
    line = fit([(t - last) / DAY_MS for t, _ in used], [float(b) for _, b in used])
    if line.slope - 2 * line.error <= 0:  # the slope may be zero
        return Filling()
    low, high = line.slope - 2 * line.error, line.slope + 2 * line.error
    return Filling(free / line.slope, free / high, free / low)


def disk(facts: Facts) -> Iterator[Verdict]:
    """One verdict for each host that reports its disk."""
    for host in facts.hosts:
        if host.away is None and host.disk_total:
            yield disk_of(host)


def disk_of(host: HostSeen) -> Verdict:
    """The verdict on the disk of one host."""
    used = 1 - host.disk_free / host.disk_total
    least_ms = _LEAST_MS if used > _EARLY else _LONG_MS
    ahead = filling(host.disk_used, host.disk_free, least_ms)
    text = f"{used:.0%} used, {size(host.disk_free)} free, {ahead}"
    needed = f"less than {_NEAR:.0%}, a week until it is full, room for a restore"
    task = max(host.tasks, key=lambda t: t.bytes, default=None)
    level: Level = "ok"
    if used >= _FULL or ahead.days < _NOW_DAYS:
        level = "fail"
    elif used >= _NEAR or ahead.earliest < _SOON_DAYS:
        level = "warn"
    elif task is not None and task.bytes * SPACE_FULL > host.disk_free:
        level = "warn"
        text += f"; a restore of task {task.partition} takes {size(task.bytes * SPACE_FULL)}"
    step = (
        ""
        if level == "ok"
        else "give the host a larger disk, or keep less: shorter windows, fewer keys. A host whose "
        "disk is full refuses commits and loses nothing"
    )
    return Verdict(NAME, host.id, level, text, needed, step)
