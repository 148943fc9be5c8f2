"""For how long conditions hold: what has just begun, and what is over. Pure: no clock."""

from __future__ import annotations

from collections.abc import Iterable

from state_lib.checks.condition import Condition

CALM_S = 10.0
"""How long a condition must not hold any more to be over, at least: hosts that start know little at
first."""


class Holding:
    """Of one condition and its subjects. Time in which nothing could be seen does not count.

    Args:
        hold_s: how long it must hold to count.
        known: subjects of which it is known that it holds.
        calm_s: how long it must not hold any more to be over.
    """

    def __init__(
        self, hold_s: float, known: Iterable[str] = (), calm_s: float | None = None
    ) -> None:
        self._hold_s, self._known = hold_s, frozenset(known)
        self._calm_s = max(hold_s, CALM_S) if calm_s is None else calm_s
        self._began: dict[str, float] = {}
        self._ended: dict[str, float] = {}
        self._at: float | None = None

    def feed(
        self, found: Iterable[Condition], sure: frozenset[str] | None, now: float
    ) -> tuple[list[Condition], list[str]]:
        """Take one look in.

        Args:
            found: what holds.
            sure: the subjects that could be seen; None: all.
            now: seconds, on any steady clock.

        Returns:
            What holds for long enough and is not known; what is known and is over for long enough.
        """
        holds = {condition.subject: condition for condition in found}
        blind = 0.0 if self._at is None else now - self._at
        self._at = now
        for since in (self._began, self._ended):
            for subject in list(since):
                if sure is not None and subject not in sure and subject not in holds:
                    since[subject] += blind
        for subject in list(self._began):
            if subject not in holds and _seen(subject, sure):
                del self._began[subject]
        for subject in holds:
            self._began.setdefault(subject, now)
            self._ended.pop(subject, None)
        for subject in self._known - holds.keys():
            if _seen(subject, sure):
                self._ended.setdefault(subject, now)
        began = [c for s, c in holds.items() if s not in self._known and self._long(s, now)]
        over = [s for s, since in self._ended.items() if now - since >= self._calm_s]
        return began, [s for s in over if _seen(s, sure)]

    @property
    def undecided(self) -> bool:
        """Whether something has begun to hold, or to be over, and not for long enough yet."""
        return bool(self._began.keys() - self._known or self._ended)

    def _long(self, subject: str, now: float) -> bool:
        return now - self._began[subject] >= self._hold_s


def _seen(subject: str, sure: frozenset[str] | None) -> bool:
    return sure is None or subject in sure
