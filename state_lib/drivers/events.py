"""What a supervisor has to say."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

Name = Literal[
    "started",
    "committing",
    "progress",
    "crashed",
    "restart",
    "gave_up",
    "superseded",
    "stopped",
    "stalled",
    "recovered",
    "lag_growing",
    "lag_shrinking",
    "kafka_away",
    "kafka_back",
    "unresponsive",
    "parked",
    "unparked",
]


@dataclass(frozen=True)
class Event:
    """One thing that happened. ``text`` is for people, ``details`` the same values as data."""

    name: Name
    text: str
    details: dict[str, Any] = field(default_factory=dict)
