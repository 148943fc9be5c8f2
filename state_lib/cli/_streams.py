"""The streams that ``holdfast status`` shows: what each does, and what to do if it failed."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import asdict, dataclass
from typing import Any

from rich.table import Table

from state_lib.apps.catalogue import Known, catalogue
from state_lib.cli._reason import Reason, reason, reason_unseen
from state_lib.cli._tables import table_or
from state_lib.config import Settings
from state_lib.drivers.look import Looker
from state_lib.drivers.sight import Sight
from state_lib.drivers.states import last_end, state_of
from state_lib.errors import HoldfastError
from state_lib.kafka import Kafka
from state_lib.stack import StackStatus
from state_lib.stack.programs import KAFKA, uses_local_broker

_AT_ONCE = 8


@dataclass(frozen=True)
class Streams:
    """One object per application: ``app, state, restarts, driver, why, next_step``.

    ``unknown``: why there are none.
    """

    streams: tuple[Mapping[str, Any], ...] = ()
    unknown: str | None = None

    def to_json(self) -> dict[str, Any]:
        """As plain data."""
        return {"streams": list(self.streams), "streams_unknown": self.unknown}


def streams(settings: Settings, stack: StackStatus) -> Streams:
    """Look at every application; Kafka is not waited for where the stack says that it is down."""
    if uses_local_broker(settings) and stack[KAFKA].health == "down":
        return Streams(unknown="Kafka does not run")
    try:
        kafka = Kafka.of(settings)
        known = [one for one in catalogue(kafka) if one.claim or one.refused or one.lost]
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            return Streams(tuple(pool.map(lambda one: _stream(settings, one), known)))
    except HoldfastError as error:
        return Streams(unknown=error.message)


def streams_table(seen: Streams) -> Table | str:
    """One row per application; what to do comes with the reason."""
    if seen.unknown is not None:
        return f"streams: not known; {seen.unknown}"
    rows = [
        {
            "stream": s["app"],
            "state": s["state"],
            "restarts": s["restarts"],
            "why": s["why"],
            "next step": s["next_step"],
        }
        for s in seen.streams
    ]
    return table_or("streams: none", rows)


def _stream(settings: Settings, known: Known) -> dict[str, Any]:
    unseen = reason_unseen(known)
    if unseen is not None:
        return _shown(known.app, Sight(at=0), known.state, unseen)
    with closing(Looker(settings, known.app)) as looker:
        sight = looker.look()
    state = state_of(sight) if sight.away is None else "unknown"
    return _shown(known.app, sight, state, reason(known.app, sight))


def _shown(app: str, sight: Sight, state: str, said: Reason) -> dict[str, Any]:
    end, facts = last_end(sight), sight.facts
    return {
        "app": app,
        "state": state,
        "restarts": end.restarts if end is not None else facts.restarts if facts is not None else 0,
        "driver": None if facts is None else asdict(facts),
        **asdict(said),
    }
