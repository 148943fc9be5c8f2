"""Who a driver is: an id that is the same in its environment, its Kafka group and its claims."""

from __future__ import annotations

import os
import socket
import uuid
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from state_lib.drivers.sight import How

ID_VARIABLE = "HOLDFAST_DRIVER_ID"
LOG_VARIABLE = "HOLDFAST_DRIVER_LOG"
HEEDS_VARIABLE = "HOLDFAST_DRIVER_HEEDS_FROM"
"""The offset in the topology topic from which on requests count for a launched driver."""

RESTARTS_VARIABLE = "HOLDFAST_DRIVER_RESTARTS"
"""How often the supervisor of a launched driver has started one again before it."""


@dataclass(frozen=True)
class Identity:
    """What a driver says of itself in every claim.

    Attributes:
        id: from its launcher, else its own invention.
        host: name of its machine.
        pid: of the Python that runs the job.
        log: path of its log on that machine; empty if it does not know.
        restarts: how often its supervisor has started one again before it.
    """

    id: str
    host: str
    pid: int
    log: str = ""
    restarts: int = 0

    @classmethod
    def of_this_process(cls) -> Self:
        """Who we are, by the environment; it is only read."""
        given = os.environ.get(ID_VARIABLE) or uuid.uuid4().hex
        log, restarts = os.environ.get(LOG_VARIABLE, ""), os.environ.get(RESTARTS_VARIABLE, "")
        count = int(restarts) if restarts.isdecimal() else 0
        return cls(given, socket.gethostname(), os.getpid(), log, count)

    def last_words(
        self, how: How, why: str, *, retry: bool, handover: bool = False
    ) -> dict[str, Any]:
        """How this driver ended, as its log and its application's topology topic say it.

        By nothing that would have to be imported: a signal comes also in the middle of an import.
        `state_lib.drivers.last_words` reads them.
        """
        end = {"how": how, "why": why, "retry": retry, "handover": handover}
        return {"id": self.id, "restarts": self.restarts, **end}

    def to_json(self) -> dict[str, Any]:
        """As plain data."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """The inverse of `to_json`."""
        return cls(**data)
