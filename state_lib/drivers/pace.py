"""How long batches take, and whether one takes too long: judged by those before it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from statistics import median
from typing import Any, Self

from state_lib.drivers.sight import Sight
from state_lib.drivers.trend import fit

REMEMBERED = 20
KNOWN = 5
"""Batches that must have been seen before their times are judged by."""
FIRST_LIMIT_S = 180.0
"""For the first ones: Spark starts, tasks open and restore, code is compiled."""
LEAST_LIMIT_S = 20.0
TIMES_MEDIAN = 4.0
TIMES_SCATTER = 5.0
BLIND_S = 30.0
"""A pause between two looks after which nothing is known of the time in between."""


@dataclass
class Pace:
    """Times of recent batches (s), and since when there has been work without a commit."""

    times: list[float] = field(default_factory=list)
    busy_since: float | None = None
    fed_at: float = 0.0
    epoch: int = -1
    n: int = 0
    repeats: int = 0

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """The inverse of ``dataclasses.asdict``."""
        return cls(**data)

    def interrupted(self) -> None:
        """Time until the next look does not count."""
        self.fed_at = 0.0

    def feed(self, sight: Sight, now: float) -> bool:
        """Take one look in; whether a batch was committed since the one before.

        The time of a batch that waited for repeats for parked tasks is not counted.
        """
        blind = now - self.fed_at > BLIND_S
        self.fed_at = now
        advanced = sight.epoch == self.epoch and sight.batch_number > self.n
        alone = sight.repeats == self.repeats
        if advanced and self.busy_since is not None and not blind and alone:
            took = (now - self.busy_since) / (sight.batch_number - self.n)
            self.times = [*self.times, round(took, 3)][-REMEMBERED:]
        if advanced or blind or sight.epoch != self.epoch:
            self.busy_since = None
        if advanced or sight.epoch != self.epoch:
            self.repeats = sight.repeats
        self.epoch, self.n = sight.epoch, sight.batch_number
        if sight.lag == 0:
            self.busy_since = None
        elif self.busy_since is None:
            self.busy_since = now
        return advanced

    def limit(self) -> float:
        """How long the next batch may take (s): what the trend of the last ones says, and slack."""
        if len(self.times) < KNOWN:
            return FIRST_LIMIT_S
        line = fit(range(len(self.times)), self.times)
        by_trend = line.at(len(self.times)) + TIMES_SCATTER * line.scatter
        return max(LEAST_LIMIT_S, TIMES_MEDIAN * median(self.times), by_trend)

    def late(self, now: float) -> float | None:
        """For how long (s) there has been work without a commit, if that is too long."""
        if self.busy_since is None or now - self.busy_since <= self.limit():
            return None
        return now - self.busy_since
