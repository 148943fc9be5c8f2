"""Hosts and snapshots of so many tasks that no test could run them: what is said of them is made.

Answers are in the hosts' own form and asked over Arrow Flight; manifests are Holdfast's own.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from pyarrow import flight

from state_lib.protocol.addresses import HostAddress
from state_lib.protocol.marker import Marker, now_ms
from state_lib.protocol.wire import pack, unpack
from state_lib.snapshots.listing import FILES, MANIFESTS
from state_lib.snapshots.manifest import FileEntry, Manifest, new_id
from state_lib.specs import Topology
from state_lib.stack.ports import free_port
from state_lib.stores.task_stores import layout_of

GB = 10**9
_FILES = 3


class _Host(flight.FlightServerBase):  # type: ignore[misc]
    """Answers ``holdings`` alone, as `state_lib.host.holdings` makes them."""

    def __init__(self, app: str, host: str, tasks: Sequence[Mapping[str, Any]]) -> None:
        super().__init__("grpc://127.0.0.1:0")
        disk = {"total": 1000 * GB, "free": 600 * GB, "used": [[now_ms(), 400 * GB]]}
        said: dict[str, Any] = {"host": host, "disk": disk, "apps": {app: {"tasks": list(tasks)}}}
        self._app, self._said = app, pack(said)

    def do_action(
        self, context: flight.ServerCallContext, action: flight.Action
    ) -> Iterator[flight.Result]:
        del context
        assert (action.type, unpack(action.body)["app"]) == ("holdings", self._app)
        return iter([flight.Result(self._said)])


def said_of(
    partition: int, offsets: Mapping[str, int], store: str, marker: Marker
) -> dict[str, Any]:
    """An open task; ``offsets``: up to which its directory is durable."""
    return {
        "partition": partition,
        "state": "open",
        "waits": None,
        "marker": marker.to_json(),
        "bytes": GB,
        "durable": dict(offsets),
        "stores": {store: {"entries": 1, "memory_bytes": 0, "max_bytes": 0}},
    }


@contextmanager
def playing_hosts(
    app: str, said: Sequence[Mapping[str, Any]], count: int
) -> Iterator[list[HostAddress]]:
    """So many hosts that share the tasks."""
    with ExitStack() as stack:
        found = []
        for n in range(count):
            host = _Host(app, f"host-{n + 1}", said[n::count])
            stack.callback(host.shutdown)
            found.append(HostAddress(f"host-{n + 1}", "127.0.0.1", host.port, free_port()))
        yield found


def store_snapshot(
    root: Path, topology: Topology, partition: int, marker: Marker, offsets: Mapping[str, int]
) -> None:
    """One of a task, with its files, that stands at a marker: ``offsets`` by changelog."""
    folder = root / topology.app / str(partition)
    for name in (FILES, MANIFESTS):
        (folder / name).mkdir(parents=True)
    files = []
    for n in range(_FILES):
        content = f"{partition}/{n}".encode()
        entry = FileEntry(f"{n:06}.sst", len(content), hashlib.sha256(content).hexdigest())
        (folder / FILES / entry.sha256).write_bytes(content)
        files.append(entry)
    manifest = Manifest(
        id=new_id(marker.written_at),
        app=topology.app,
        partition=partition,
        marker=marker,
        offsets={topic: [marker.logs[topic], at] for topic, at in offsets.items()},
        layouts={store.name: layout_of(store) for store in topology.stores},
        stores=topology.stores,
        files=tuple(files),
        digests={store.name: "" for store in topology.stores},
        created_at=marker.written_at,
        host=marker.owner,
        partitions=topology.partitions,
    )
    (folder / MANIFESTS / f"{manifest.id}.json").write_bytes(manifest.to_bytes())


def older(marker: Marker, n: int, age_ms: int) -> Marker:
    """Commit ``n``, of so long ago."""
    return replace(marker, batch_number=n, written_at=now_ms() - age_ms)
