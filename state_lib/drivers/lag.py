"""Whether lag grows: lines through what it was right after commits, over minutes and an hour."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

from state_lib.drivers.events import Event
from state_lib.drivers.sight import Sight
from state_lib.drivers.trend import Line, fit

Sample = list[float]
REMEMBERED = 60
SHORT = 24
NEAR_S, FAR_S = 5.0, 60.0
"""Spacing of samples: two minutes (the last `SHORT`) and five of the near, an hour of the far."""
LEAST_POINTS, LEAST_SPAN_S = 10, 110.0
ERRORS, MORE_ERRORS = 3.0, 25.0
"""How many standard errors a slope must be away from zero: 3, and 25 / n more for n points, as the
error itself is uncertain with few of them, and the question is asked again at every commit."""
WORTH_S = 30.0
"""Growth counts once it is worth that many seconds of the driver's work."""


@dataclass
class ConsumerLag:
    """Samples ``[wall s, lag, done]``, each right after a commit: batches make lag a saw-tooth."""

    near: list[Sample] = field(default_factory=list)
    far: list[Sample] = field(default_factory=list)
    open_lag: int | None = None

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """The inverse of ``dataclasses.asdict``."""
        return cls(**data)

    def interrupted(self) -> None:
        """What follows has nothing to do with what was before: a start, a stall, Kafka was away."""
        self.near, self.far = [], []

    def feed(self, app: str, sight: Sight, now: float, *, committed: bool) -> list[Event]:
        """Take one look in; ``lag_growing`` once it does, ``lag_shrinking`` once that is over."""
        if self.open_lag is not None and sight.lag <= self.open_lag // 2:
            return [self._closed(app, sight, "it has halved")]
        due = not self.near or now - self.near[-1][0] >= NEAR_S
        if not committed or not due:
            return []
        sample = [now, sight.lag, sight.done]
        self.near = [*self.near, sample][-REMEMBERED:]
        if not self.far or now - self.far[-1][0] >= FAR_S:
            self.far = [*self.far, sample][-REMEMBERED:]
        for lag, done, seconds, doubt in self._lines():
            worth = abs(lag.slope) * seconds > WORTH_S * max(done.slope, 0.0)
            if self.open_lag is None and lag.slope > doubt and worth:
                return [self._opened(app, sight, lag, done)]
            if self.open_lag is not None and lag.slope < -doubt and worth:
                return [self._closed(app, sight, f"it falls by {-lag.slope * 60:,.0f} records/min")]
        return []

    def _lines(self) -> Iterator[tuple[Line, Line, float, float]]:
        """Per window, the shortest first: lag, done, its seconds, and what a slope must exceed."""
        windows: tuple[Sequence[Sample], ...] = (self.near[-SHORT:], self.near, self.far)
        for window in windows:
            seconds = window[-1][0] - window[0][0]
            if len(window) < LEAST_POINTS or seconds < LEAST_SPAN_S:
                continue
            xs = [s[0] - window[0][0] for s in window]
            lag, done = (fit(xs, [s[i] for s in window]) for i in (1, 2))
            yield lag, done, seconds, (ERRORS + MORE_ERRORS / len(xs)) * lag.error

    def _opened(self, app: str, sight: Sight, lag: Line, done: Line) -> Event:
        self.open_lag = sight.lag
        self.interrupted()
        comes = done.slope + lag.slope
        in_an_hour = sight.lag + lag.slope * 3600
        text = (
            f"lag of {app} grows by {lag.slope * 60:,.0f} records/min: {comes:,.0f}/s come in, "
            f"{done.slope:,.0f}/s are committed. It is {sight.lag:,} now; at this rate it will be "
            f"{in_an_hour:,.0f} in an hour. Give Spark more cores, or let more hosts share the "
            "tasks"
        )
        details = {
            "lag": sight.lag,
            "grows_per_s": round(lag.slope, 1),
            "error_per_s": round(lag.error, 1),
            "in_per_s": round(comes, 1),
            "committed_per_s": round(done.slope, 1),
        }
        return Event("lag_growing", text, details)

    def _closed(self, app: str, sight: Sight, how: str) -> Event:
        opened, self.open_lag = self.open_lag, None
        self.interrupted()
        text = f"lag of {app} grows no longer: {how}; it is {sight.lag:,} now"
        return Event("lag_shrinking", text, {"lag": sight.lag, "lag_at_alarm": opened})
