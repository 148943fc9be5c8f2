"""How far an application is, seen from outside: markers against the ends of its sources."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from state_lib.changelog.claims import topology_of
from state_lib.client.flight import FlightHostClient
from state_lib.errors import HoldfastError
from state_lib.kafka import Kafka, describe, ends
from state_lib.protocol.placement import owner_of
from state_lib.protocol.positions import Positions

if TYPE_CHECKING:
    from state_lib.config import Settings


@dataclass(frozen=True)
class Place:
    """Source records that every task has committed, of those that are there."""

    done: int
    total: int

    @property
    def at_the_end(self) -> bool:
        """Whether nothing is left."""
        return self.done >= self.total


class Following:
    """Looks at one application again and again."""

    def __init__(self, settings: Settings, app: str) -> None:
        self._settings, self._app = settings, app
        self._kafka = Kafka.of(settings)
        self._token = settings.read_token()

    def look(self) -> Place | None:
        """Where it is, by the slowest task; None while it has not started or hosts are away."""
        try:
            topology = topology_of(self._kafka, self._app)
            positions = [self._positions(p) for p in range(topology.partitions)]
            facts = describe(self._kafka.admin(), topology.sources)
            every = [(t, p) for t, f in facts.items() for p in range(f.partitions)]
            end = ends(self._kafka.admin(), every)
        except HoldfastError:
            return None
        if any(partition not in where for partition in every for where in positions):
            return None
        return Place(sum(min(w[p] for w in positions) for p in every), sum(end.values()))

    def _positions(self, partition: int) -> Positions:
        address = owner_of(self._app, partition, self._settings.host_addresses)
        client = FlightHostClient(address, self._token)
        try:
            return client.marker(self._app, partition).positions
        finally:
            client.close()
