"""What is wrong with a driver that lives: one word when it begins, one when it is over."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self

from state_lib.drivers.events import Event
from state_lib.drivers.lag import ConsumerLag
from state_lib.drivers.pace import FIRST_LIMIT_S, Pace
from state_lib.drivers.sight import Sight
from state_lib.drivers.stall import why_stalled

SILENT_S = 20.0
"""How long a driver whose process lives may be missing from its group."""


@dataclass
class Alarms:
    """Stall, silence, growing lag, tasks that are left out.

    ``stalled``, ``silent`` and ``parked`` say whether an alarm was raised.
    """

    pace: Pace = field(default_factory=Pace)
    lag: ConsumerLag = field(default_factory=ConsumerLag)
    stalled: bool = False
    silent: bool = False
    missing_since: float | None = None
    joined: bool = False
    parked: list[int] = field(default_factory=list)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """The inverse of ``dataclasses.asdict``."""
        own = {"pace": Pace.from_json(data["pace"]), "lag": ConsumerLag.from_json(data["lag"])}
        return cls(**{**data, **own})

    def begin(self) -> None:
        """Start with a new driver. Alarms stay raised until it has recovered."""
        self.joined, self.missing_since = False, None
        self.interrupted()

    def interrupted(self) -> None:
        """Time until the next look does not count: Kafka was away."""
        self.pace.interrupted()
        self.lag.interrupted()
        self.missing_since = None

    def starting(self, app: str, seconds: float) -> list[Event]:
        """A driver that was launched ``seconds`` ago and has not claimed its application yet."""
        if self.stalled or seconds <= FIRST_LIMIT_S:
            return []
        self.stalled = True
        text = (
            f"the driver of {app} lives but has not claimed it for {seconds:,.0f} s: does Spark's "
            "master answer? Look at the driver's log"
        )
        return [Event("stalled", text, {"seconds": round(seconds), "reason": "starting"})]

    def feed(self, app: str, driver: str, sight: Sight, now: float) -> list[Event]:
        """Take in a look at a driver that lives and has claimed."""
        committed = self.pace.feed(sight, now)
        events = self._silence(app, driver, sight, now)
        if self.stalled and (committed or sight.lag == 0):
            self.stalled = False
            self.lag.interrupted()  # lag from that time is no trend
            text = f"{app} commits again" if committed else f"{app} has nothing left to do"
            events.append(
                Event("recovered", text, {"of": "stalled", "batch_number": sight.batch_number})
            )
        late = self.pace.late(now)
        if late is not None and not self.stalled and self.missing_since is None:
            self.stalled = True
            events.append(self._stall(app, sight, late))
        events += self._left_out(app, sight)
        return events + self.lag.feed(app, sight, now, committed=committed)

    def _left_out(self, app: str, sight: Sight) -> list[Event]:
        before, new = self.parked, set(sight.parked) - set(self.parked)
        if before and not sight.parked:
            self.parked = []
            text = f"all tasks of {app} keep up again"
            return [Event("unparked", text, {"tasks": before})]
        if not new:
            return []
        self.parked = sorted(new | set(before))
        why = "; ".join(sight.hosts) or "their hosts are away, or restore them"
        tasks = ", ".join(map(str, sight.parked))
        text = f"{app} goes on without tasks {tasks}, which catch up when they are back: {why}"
        return [Event("parked", text, {"tasks": list(sight.parked), "why": why})]

    def _silence(self, app: str, driver: str, sight: Sight, now: float) -> list[Event]:
        if driver in sight.drivers:
            self.joined, self.missing_since = True, None
            if not self.silent:
                return []
            self.silent = False
            self.pace.interrupted()  # while it was silent it could not work either
            self.lag.interrupted()
            text = f"Kafka hears from the driver of {app} again"
            return [Event("recovered", text, {"of": "unresponsive"})]
        if not self.joined or self.silent:
            return []
        self.missing_since = self.missing_since or now
        seconds = now - self.missing_since
        if seconds <= SILENT_S:
            return []
        self.silent = True
        text = (
            f"the process of {app}'s driver lives, but Kafka has not heard from it for "
            f"{seconds:.0f} s and more: it is suspended, swapping, or cut off from the brokers"
        )
        return [Event("unresponsive", text, {"seconds": round(seconds)})]

    def _stall(self, app: str, sight: Sight, seconds: float) -> Event:
        usual = sorted(self.pace.times)[len(self.pace.times) // 2] if self.pace.times else None
        reason, words = why_stalled(sight)
        batches = "" if usual is None else f" (batches took {usual:,.1f} s)"
        text = (
            f"{app} has {sight.lag:,} records to do and has committed nothing for "
            f"{seconds:,.0f} s{batches}: {words}"
        )
        details = {
            "seconds": round(seconds),
            "usual_s": usual,
            "lag": sight.lag,
            "reason": reason,
            "why": words,
        }
        return Event("stalled", text, details)
