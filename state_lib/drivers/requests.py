"""Which requests count for a driver that is supervised, and what they are meant for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from state_lib.drivers.sight import Ended, Sight, Stop


@dataclass
class Requests:
    """Offsets of requests that are not for the stream of this driver.

    Attributes:
        stale: those up to it are not for this driver either; None: not known yet.
        ending: of the newest one that an adopted driver heeds, and that was asked for before it was
            supervised: its end is no end of the stream, unless a stop is asked for later; -1: none.
    """

    stale: int | None = None
    ending: int = -1

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """The inverse of ``dataclasses.asdict``."""
        return cls(**data)

    def begin(self, driver: str, sight: Sight) -> None:
        """A driver is supervised from now on: one that has claimed heeds what came after that."""
        if self.stale is None:
            self.stale = sight.epoch if sight.driver == driver else _newest(sight)

    def stop(self, sight: Sight) -> Stop | None:
        """The newest request to stop the stream that counts."""
        if self.stale is None:
            return None
        return sight.stream_stopped_since(max(self.stale, self.ending) + 1)

    def hears(self, sight: Sight) -> bool:
        """Whether the driver is asked to stop; also if it has claimed since: see `Control`."""
        return self.ending >= 0 or (self.stale is not None and _newest(sight) > self.stale)

    def is_handover(self, sight: Sight, end: Ended | None = None) -> bool:
        """Whether a driver that was asked to stop, or has, is to be followed by a new one.

        A stop of the stream decides, for it may have come after the driver's last words; where
        nothing is meant for this driver, those do.
        """
        if self.stop(sight) is not None:
            return False
        return self.hears(sight) or (end is not None and end.handover)

    def handed_over(self, sight: Sight) -> None:
        """What was asked for until now has been done."""
        self.stale, self.ending = max(_newest(sight), self.ending), -1


def _newest(sight: Sight) -> int:
    return -1 if sight.asked is None else sight.asked.offset
