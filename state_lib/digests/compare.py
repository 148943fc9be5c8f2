"""Live stores against their changelogs, or a snapshot and its tail.

Compaction may remove a record that a later one overrides, so a replay gives the exact state only of
a marker that was the newest when its records were read. Therefore the bulk is read first, then the
host is asked (it holds a snapshot of its stores at its newest marker), then the rest up to that
marker: what came after it in these moments can at worst be seen once. A difference is looked at
again at a newer marker, up to which the replica has read on, or at the same one if none comes; if
it is still there it is real.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from state_lib.client.flight import FlightHostClient
from state_lib.digests.live import Progress, TaskDigest, silent, task_digest
from state_lib.digests.replica import Replica, aside
from state_lib.digests.sources import SourceName, from_nothing, from_snapshot
from state_lib.errors import HoldfastError, InvalidRequest, Unauthorized
from state_lib.kafka import Kafka
from state_lib.protocol.addresses import HostAddress
from state_lib.protocol.marker import Marker
from state_lib.protocol.placement import owner_of
from state_lib.specs import Topology
from state_lib.stores.digest import StoreDigest

LOOKS = 2
NEWER_S = 15.0
"""How long a newer marker is waited for before the second look: an idle application has none."""


@dataclass(frozen=True)
class Compared:
    """One task.

    Attributes:
        live: the last look at the live stores.
        replayed: what the replica gave at the same positions; empty if it could not be built.
        looks: how often was looked.
        error: why it was not compared.
        newer: whether the last look was at a newer marker than the first.
    """

    live: TaskDigest
    replayed: dict[str, StoreDigest]
    looks: int
    error: str | None = None
    newer: bool = False

    @property
    def different(self) -> list[str]:
        """Stores whose digests differ."""
        return sorted(n for n, one in self.replayed.items() if one != self.live.stores.get(n))

    def to_json(self) -> dict[str, Any]:
        """As plain data."""
        return {
            "partition": self.live.partition,
            "host": self.live.host,
            "error": self.error,
            "looks": self.looks,
            "different": self.different,
            "live": self.live.to_json(),
            "replayed": {name: str(one) for name, one in self.replayed.items()},
        }


@dataclass(frozen=True)
class Comparison:
    """Of an application: its tasks by partition."""

    topology: Topology
    source: SourceName
    tasks: Sequence[Compared]

    @property
    def failed(self) -> list[Compared]:
        """Tasks that could not be compared."""
        return [t for t in self.tasks if t.error is not None]

    @property
    def alarms(self) -> list[Compared]:
        """Tasks that differ, twice."""
        return [t for t in self.tasks if t.error is None and t.different]

    def to_json(self) -> dict[str, Any]:
        """As plain data."""
        return {
            "app": self.topology.app,
            "against": self.source,
            "complete": not self.failed,
            "equal": not self.alarms,
            "tasks": [t.to_json() for t in self.tasks],
        }


def compare(  # noqa: PLR0913 - who is asked, about what, where
    kafka: Kafka,
    topology: Topology,
    hosts: Sequence[HostAddress],
    token: str | None,
    stores: Sequence[str] | None = None,
    *,
    partitions: Sequence[int] | None = None,
    snapshots_url: str | None = None,
    folder: Path | None = None,
    report: Progress = silent,
) -> Comparison:
    """Build every task's stores aside, one task after the other, and compare.

    Args:
        kafka: connection.
        topology: of the application, which may go on meanwhile.
        hosts: all of them.
        token: that they want.
        stores: names; None for all.
        partitions: of the tasks; None for all.
        snapshots_url: begin with the newest valid snapshot from there; None: a full replay.
        folder: where temporary directories are made.
        report: told of what is read.

    Raises:
        Unauthorized: a host refused the token.
        InvalidRequest: ``folder`` is no directory, or cannot be written to.
    """
    if folder is not None and not (folder.is_dir() and os.access(folder, os.W_OK | os.X_OK)):
        raise InvalidRequest(
            f"{folder} is no directory that can be written to: name another one (--dir)",
            path=str(folder),
        )
    names = [s.name for s in topology.stores] if stores is None else list(stores)
    fill = from_nothing if snapshots_url is None else from_snapshot(kafka, snapshots_url)
    found = []
    for partition in range(topology.partitions) if partitions is None else partitions:
        address = owner_of(topology.app, partition, hosts)
        with closing(FlightHostClient(address, token)) as client:
            try:
                newest = client.marker(topology.app, partition)
                begin = partial(fill, newest=newest)
                with aside(kafka, topology, partition, names, begin, folder, report) as replica:
                    replica.follow()
                    found.append(
                        compare_replica(client, topology, partition, names, replica, report)
                    )
            except Unauthorized:
                raise
            except HoldfastError as error:
                nothing = TaskDigest(partition, address.id, error=error.message)
                why = f"{topology.app}/{partition} on {address.id}: {error.message}"
                found.append(Compared(nothing, {}, 0, why))
    return Comparison(topology, "changelog" if snapshots_url is None else "snapshot", found)


def compare_replica(
    client: FlightHostClient,
    topology: Topology,
    partition: int,
    stores: Sequence[str],
    replica: Replica,
    report: Progress,
) -> Compared:
    """A replica that has read its changelogs, against the live stores.

    Args:
        client: of the task's owner.
        topology: of the application.
        partition: of the task.
        stores: names.
        replica: of them; it is read on.
        report: told of what is read.

    Raises:
        Unauthorized: the host refused the token.
    """
    compared = Compared(TaskDigest(partition, client.address.id), {}, 0)
    for look in range(1, LOOKS + 1):
        if look > 1:
            _await_newer(client, topology.app, partition, compared.live)
        before = compared.live.marker
        live = task_digest(client, topology, partition, stores, report)
        if live.error is not None:
            return Compared(live, {}, look, live.error)
        replica.follow(live.offsets, live.marker.stream_time_ms)
        newer = look > 1 and _place(live.marker) != _place(before)
        compared = Compared(live, replica.digests(live.marker.stream_time_ms), look, newer=newer)
        if not compared.different:
            break
    return compared


def _await_newer(client: FlightHostClient, app: str, partition: int, before: TaskDigest) -> None:
    deadline = time.monotonic() + NEWER_S
    seen = _place(before.marker)
    while time.monotonic() < deadline:
        marker = client.marker(app, partition)
        if _place(marker) != seen:
            return
        time.sleep(0.25)


def _place(marker: Marker) -> tuple[int, int]:
    return marker.epoch, marker.batch_number
