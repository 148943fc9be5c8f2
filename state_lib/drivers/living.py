"""Whether a driver lives: by its process where that can be seen, else by its Kafka group."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from state_lib.drivers.sight import Sight

ABSENT_S = 3.0
"""How long a driver must be missing from its group to be gone, where no process can be seen."""
SETTLING_S = 20.0
"""The same after Kafka was away: drivers join again at their own pace."""
START_PATIENCE_S = 180.0
"""How long a driver that cannot be seen as a process may take to join its group."""
DYING_S = 60.0
"""How long a driver that has said its last words may take to end."""


@dataclass
class Living:
    """What was seen of one driver. All times are wall seconds."""

    joined: bool = False
    missing_since: float | None = None
    ended_since: float | None = None
    back_at: float | None = None

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """The inverse of ``dataclasses.asdict``."""
        return cls(**data)

    def begin(self, *, joined: bool = False) -> None:
        """A new driver; ``joined``: it is in its group already."""
        self.joined, self.missing_since, self.ended_since = joined, None, None

    def interrupted(self, now: float) -> None:
        """Kafka was away until now."""
        self.back_at, self.missing_since = now, None

    def overdue(self, now: float) -> bool:
        """Whether the driver has had its time to end after its last words."""
        return self.ended_since is not None and now - self.ended_since >= DYING_S

    def feed(
        self, driver: str, launched_at: float, sight: Sight, *, process: bool | None, now: float
    ) -> bool:
        """Take one look in; whether the driver lives.

        Args:
            driver: its id.
            launched_at: when it was launched, or adopted.
            sight: the look.
            process: whether its process lives; None if only Kafka shows that.
            now: when that was.
        """
        if sight.end_of(driver) is not None:
            self.ended_since = self.ended_since or now
            return process is True and not self.overdue(now)
        if process is not None:
            return process
        if driver in sight.drivers:
            self.joined, self.missing_since = True, None
            return True
        if not self.joined:
            return now - launched_at < START_PATIENCE_S
        self.missing_since = self.missing_since or now
        settling = self.back_at is not None and now - self.back_at < SETTLING_S
        return settling or now - self.missing_since < ABSENT_S
