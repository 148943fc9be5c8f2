"""Digests of live stores, asked of the hosts that own them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any

from state_lib.client.flight import FlightHostClient
from state_lib.errors import HoldfastError, Unauthorized, Unavailable
from state_lib.protocol.addresses import HostAddress
from state_lib.protocol.marker import Marker
from state_lib.protocol.placement import owner_of
from state_lib.specs import Topology
from state_lib.stores.digest import StoreDigest, added

Progress = Callable[[str, str, int], None]
"""Told of a task, of what is read, and of how many more entries or records were."""


def silent(_task: str, _what: str, _entries: int) -> None:
    """The default: nobody listens."""


@dataclass(frozen=True)
class TaskDigest:
    """One task's stores at one marker.

    ``offsets``: changelog topic → ``[topic id, next offset]`` at the marker. ``error``: why there
    are no digests.
    """

    partition: int
    host: str
    marker: Marker = field(default_factory=Marker)
    offsets: Mapping[str, list[Any]] = field(default_factory=dict)
    stores: Mapping[str, StoreDigest] = field(default_factory=dict)
    error: str | None = None

    def to_json(self) -> dict[str, Any]:
        """As plain data."""
        at = self.marker
        known = {
            "epoch": at.epoch,
            "batch_number": at.batch_number,
            "stream_time_ms": at.stream_time_ms,
            "positions": at.positions.to_json(),
        }
        return {
            "partition": self.partition,
            "host": self.host,
            "marker": None if self.error else known,
            "stores": {name: str(one) for name, one in self.stores.items()},
            "error": self.error,
        }


@dataclass(frozen=True)
class Digests:
    """Of an application: its tasks by partition."""

    topology: Topology
    stores: Sequence[str]
    tasks: Sequence[TaskDigest]

    @property
    def failed(self) -> list[TaskDigest]:
        """Tasks without digests."""
        return [t for t in self.tasks if t.error is not None]

    @property
    def totals(self) -> dict[str, StoreDigest]:
        """By store, over all tasks; nothing if a task is missing, for a part is no total."""
        if self.failed:
            return {}
        return {name: added(t.stores[name] for t in self.tasks) for name in self.stores}

    def to_json(self) -> dict[str, Any]:
        """As plain data."""
        return {
            "app": self.topology.app,
            "complete": not self.failed,
            "totals": {name: str(one) for name, one in self.totals.items()},
            "tasks": [t.to_json() for t in self.tasks],
        }


def live_digests(
    topology: Topology,
    hosts: Sequence[HostAddress],
    token: str | None,
    stores: Sequence[str] | None = None,
    report: Progress = silent,
) -> Digests:
    """Digests of all tasks, each at its newest marker; the application may go on meanwhile.

    Hosts work side by side, each on one task after the other.

    Raises:
        Unauthorized: a host refused the token.
    """
    names = [s.name for s in topology.stores] if stores is None else list(stores)
    owned: dict[HostAddress, list[int]] = {}
    for partition in range(topology.partitions):
        owned.setdefault(owner_of(topology.app, partition, hosts), []).append(partition)

    def of_host(entry: tuple[HostAddress, list[int]]) -> list[TaskDigest]:
        address, partitions = entry
        with closing(FlightHostClient(address, token)) as client:
            return [task_digest(client, topology, p, names, report) for p in partitions]

    with ThreadPoolExecutor(max(1, min(16, len(owned)))) as pool:
        found = [task for tasks in pool.map(of_host, owned.items()) for task in tasks]
    return Digests(topology, names, sorted(found, key=lambda task: task.partition))


def task_digest(
    client: FlightHostClient,
    topology: Topology,
    partition: int,
    stores: Sequence[str],
    report: Progress = silent,
) -> TaskDigest:
    """Digests of one task; what goes wrong is in ``error``. Raises Unauthorized."""
    host, name = client.address.id, f"{topology.app}/{partition}"
    try:
        return _ask(client, topology, partition, stores, report)
    except Unauthorized:
        raise
    except HoldfastError as error:
        return TaskDigest(partition, host, error=f"{name} on {host}: {error.message}")


def _ask(
    client: FlightHostClient,
    topology: Topology,
    partition: int,
    stores: Sequence[str],
    report: Progress,
) -> TaskDigest:
    told = client.digests(topology.app, partition, stores)
    first = next(told, {})
    found: dict[str, StoreDigest] = {}
    for message in told:
        if "digest" in message:
            found[message["store"]] = StoreDigest.parse(message["digest"])
        else:
            report(f"{topology.app}/{partition}", message["store"], message["entries"])
    if missing := sorted(set(stores) - found.keys()):
        raise Unavailable(f"the answer ended before the stores {missing}: ask again")
    marker = Marker.from_json(first["marker"])
    return TaskDigest(partition, client.address.id, marker, first["offsets"], found)
