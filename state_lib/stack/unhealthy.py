"""Services that were started and are not healthy: what is told of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from state_lib.errors import Unavailable
from state_lib.stack.logs import last_lines

LOG_LINES_IN_ERRORS = 15


@dataclass(frozen=True)
class Unhealthy:
    """One of them.

    Attributes:
        name: of the service.
        why: a verb with what it does.
        state: supervisor's.
        log: its log.
        lives: whether it does its work in part, so that others may start beside it.
    """

    name: str
    why: str
    state: str
    log: Path
    lives: bool

    def told(self) -> str:
        """In words, with the end of its log."""
        tail = "\n".join(last_lines(self.log, LOG_LINES_IN_ERRORS)) or "(nothing)"
        return f"{self.name} {self.why} (state: {self.state}). Its log, {self.log}, ends:\n{tail}"


def unavailable(found: Sequence[Unhealthy]) -> Unavailable:
    """The error that tells of all of them, and of the next step.

    Args:
        found: as they were waited for; if the last one does not live, nothing was started after it.
    """
    last = found[-1]
    next_step = "Correct the cause, then 'holdfast down' and 'holdfast up'."
    if last.lives:
        next_step = "Correct the cause: all else that was asked for is started."
    message = "\n".join([*(one.told() for one in found), next_step])
    return Unavailable(message, service=last.name, state=last.state, log=str(last.log))
