"""Failures of a driver: after each a pause, after too many in a row the end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

from state_lib.drivers.events import Event

MOST_WAIT_S = 60.0


@dataclass(frozen=True)
class Failure:
    """One of them.

    Attributes:
        what: in words, such as that the driver is gone.
        why: as it says itself, or its log.
        hopeless: starting it again cannot help.
        said: the last lines of its log.
    """

    what: str
    why: str
    hopeless: bool = False
    said: Sequence[str] = ()


@dataclass
class Failures:
    """Those in a row without a commit in between; ``restart_at`` is wall seconds."""

    in_a_row: int = 0
    restart_at: float = 0.0

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """The inverse of ``dataclasses.asdict``."""
        return cls(**data)

    def more(self, app: str, failure: Failure, now: float, *, most: int) -> list[Event]:
        """One more: ``crashed``, and ``gave_up`` if it was the last one that is borne.

        Args:
            app: whose driver it was.
            failure: how it failed.
            now: wall seconds.
            most: how many in a row are borne.
        """
        self.in_a_row += 1
        why, said = failure.why, list(failure.said)
        details: dict[str, Any] = {"why": why, "failures": self.in_a_row, "said": said}
        crashed = f"{failure.what} (failure {self.in_a_row} in a row): {why}"
        if not failure.hopeless and self.in_a_row <= most:
            wait = min(2.0 ** (self.in_a_row - 1), MOST_WAIT_S)
            self.restart_at = now + wait
            return [Event("crashed", crashed, {**details, "restart_in_s": wait})]
        reason = (
            "starting it again cannot help"
            if failure.hopeless
            else f"it failed {self.in_a_row} times in a row without a commit"
        )
        text = f"given up on {app}: {reason}. The last failure: {why}"
        return [Event("crashed", crashed, details), Event("gave_up", text, details)]
