"""Whether a driver is stalled, by one look after the other. Pure: no clock."""

from __future__ import annotations

from state_lib.checks.condition import Condition
from state_lib.checks.conditions import driver_stalled
from state_lib.drivers.pace import Pace
from state_lib.drivers.sight import Sight
from state_lib.drivers.states import state_of


class Stalling:
    """Of one application.

    Who begins to look knows nothing of the batches before. So while a driver has work, neither is
    late by what was seen, nor was seen to commit, nobody can say that a stall is over.
    """

    def __init__(self, app: str) -> None:
        self._app, self._pace = app, Pace()
        self._commits = False

    def interrupted(self) -> None:
        """Time until the next look does not count."""
        self._pace.interrupted()

    def feed(self, sight: Sight, now: float) -> tuple[tuple[Condition, ...], bool]:
        """Take one look in at which Kafka answered.

        Args:
            sight: the look.
            now: seconds, on any steady clock.

        Returns:
            The condition, if it holds; and whether that is sure.
        """
        advanced = self._pace.feed(sight, now)
        found = tuple(driver_stalled(self._app, sight, self._pace.late(now)))
        if found:
            self._commits = False  # the next driver may stall as well
        elif advanced or sight.lag == 0:
            self._commits = True
        at_work = state_of(sight) in ("running", "starting")
        return found, bool(found) or self._commits or not at_work
