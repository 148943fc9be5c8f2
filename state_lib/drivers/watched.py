"""A driver's connection to the outside, which outlives restarts of its stream."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Self

from state_lib.drivers.control import Control
from state_lib.drivers.identity import Identity
from state_lib.drivers.presence import Presence
from state_lib.kafka import Kafka

if TYPE_CHECKING:
    from state_lib.config import Settings


@dataclass(frozen=True)
class Watched:
    """One of each for a process.

    ``stopping`` is set to stop the process at a batch's edge, also by its driver when it is asked
    to: a stop must outlive a stream that fails meanwhile. ``kafka`` is the connection for all.
    """

    presence: Presence
    control: Control
    stopping: threading.Event = field(default_factory=threading.Event)
    kafka: Kafka | None = None

    @classmethod
    def of(cls, app: str, settings: Settings) -> Self:
        """Nothing is asked or said before the driver runs."""
        kafka, who = Kafka.of(settings), Identity.of_this_process()
        return cls(Presence(kafka, app, who), Control(kafka, app, who), kafka=kafka)
