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
        lives: whether it does its work in part, so that the others were started beside it.
    """

    name: str
    why: str
    state: str
    log: Path
    lives: bool

    def told(self) -> str:
        """In words, with the end of its log and the next step."""
        tail = "\n".join(last_lines(self.log, LOG_LINES_IN_ERRORS)) or "(nothing)"
        next_step = "Correct the cause, then 'holdfast down' and 'holdfast up'."
        if self.lives:
            next_step = (
                "Correct the cause: it does its work in part, and all else that was asked for is "
                "started."
            )
        return (
            f"{self.name} {self.why} (state: {self.state}). Its log, {self.log}, ends:\n{tail}\n"
            f"{next_step}"
        )


def unavailable(found: Sequence[Unhealthy]) -> Unavailable:
    """The error that tells of all of them; its context is of the last, for which it ended."""
    last = found[-1]
    message = "\n".join(one.told() for one in found)
    return Unavailable(message, service=last.name, state=last.state, log=str(last.log))
