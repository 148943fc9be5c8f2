"""Progress in words: often while something new happens, ever more rarely while all goes well."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Self

from state_lib.drivers.events import Event
from state_lib.drivers.sight import Sight

FIRST_PAUSE_S, MOST_PAUSE_S = 10.0, 600.0


@dataclass
class Reporting:
    """When progress was told last, and from where its rate counts."""

    told_at: float | None = None
    told_done: int = 0
    told_n: tuple[int, int] | list[int] = (-1, 0)
    pause: float = FIRST_PAUSE_S

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """The inverse of ``dataclasses.asdict``."""
        return cls(**data)

    def begin(self) -> None:
        """A new driver: everything is news again."""
        self.told_at, self.pause = None, FIRST_PAUSE_S

    def interrupted(self) -> None:
        """Something happened: what comes next is news."""
        self.pause = FIRST_PAUSE_S

    def feed(self, app: str, sight: Sight, now: float) -> list[Event]:
        """Tell progress if it is time, and there was some."""
        here = (sight.epoch, sight.batch_number)
        if sight.batch_number == 0 or tuple(self.told_n) == here:
            return []
        if self.told_at is None:
            self.told_at, self.told_done, self.told_n = now, sight.done, here
            return []
        if now - self.told_at < self.pause:
            return []
        rate = max(0, sight.done - self.told_done) / (now - self.told_at)
        self.told_at, self.told_done, self.told_n = now, sight.done, here
        self.pause = min(self.pause * 2, MOST_PAUSE_S)
        details = {
            "done": sight.done,
            "total": sight.total,
            "lag": sight.lag,
            "rows_per_s": round(rate, 1),
            "batch_number": sight.batch_number,
            "stream_time_ms": sight.stream_time_ms,
        }
        return [Event("progress", _words(app, sight, rate), details)]


def _words(app: str, sight: Sight, rate: float) -> str:
    parts = [f"{app}: {sight.done:,} of {sight.total:,} records", f"{rate:,.0f}/s"]
    if sight.lag and rate:
        parts.append(f"lag {sight.lag:,} (about {sight.lag / rate:,.0f} s of work)")
    else:
        parts.append(f"lag {sight.lag:,}")
    parts.append(f"batch {sight.batch_number}")
    if sight.stream_time_ms >= 0:
        reached = datetime.fromtimestamp(sight.stream_time_ms / 1000, UTC)
        parts.append(f"stream time {reached:%Y-%m-%d %H:%M:%S}Z")
    if sight.parked:
        parts.append(f"without tasks {', '.join(map(str, sight.parked))}, whose hosts are away")
    return ", ".join(parts)
