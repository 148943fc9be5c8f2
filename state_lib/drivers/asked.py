"""Which request to stop counts for a driver that is supervised, and what it is meant for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from state_lib.drivers.sight import Ended, Sight


@dataclass
class Asked:
    """Offsets of requests that are not for the stream of this driver; -1: none.

    Attributes:
        stale: of the newest one before the driver: it does not heed that.
        ending: of one that an adopted driver heeds, and that was asked for before it was
            supervised: its end is no end of the stream, unless a later one is asked for.
    """

    stale: int = -1
    ending: int = -1

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """The inverse of ``dataclasses.asdict``."""
        return cls(**data)

    def begin(self, driver: str, sight: Sight) -> None:
        """A driver is supervised from now on: one that has claimed heeds what came after that."""
        heeded = sight.driver == driver and sight.stop is not None
        self.stale = -1 if heeded else _newest(sight)

    def hears(self, sight: Sight) -> bool:
        """Whether the driver is asked to stop; also if it has claimed since: see `Control`."""
        return _newest(sight) > self.stale

    def is_handover(self, sight: Sight, end: Ended | None = None) -> bool:
        """Whether a driver that was asked to stop, or has, is to be followed by a new one.

        The newest request decides, for it may have come after the driver's last words; where it is
        not meant for this driver, those do.
        """
        if self.ending >= 0 and _newest(sight) <= self.ending:
            return True
        if sight.asked is not None and self.hears(sight):
            return sight.asked.handover
        return end is not None and end.handover

    def handed_over(self, sight: Sight) -> None:
        """What was asked for until now has been done."""
        self.stale, self.ending = max(_newest(sight), self.ending), -1


def _newest(sight: Sight) -> int:
    return -1 if sight.asked is None else sight.asked.offset
