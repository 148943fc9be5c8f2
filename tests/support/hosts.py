"""Hosts in this process: a `TaskManager` behind Flight, and clients to it."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from state_lib.client.flight import FlightHostClient
from state_lib.driver.claims import write_claim
from state_lib.errors import Unavailable
from state_lib.host.flight import FlightHost
from state_lib.host.snapshots import SnapshotJobs
from state_lib.host.tasks import TaskManager
from state_lib.protocol.addresses import HostAddress
from state_lib.protocol.marker import Marker
from state_lib.stack.ports import free_port
from tests.support.apps import App
from tests.support.waiting import deadline_in


def address(host: str = "host-1") -> HostAddress:
    return HostAddress(host, "127.0.0.1", free_port(), free_port())


@contextmanager
def managed(
    app: App,
    at: HostAddress,
    hosts: list[HostAddress] | None = None,
    flush_s: float = 60.0,
    **more: Any,
) -> Iterator[TaskManager]:
    """A started manager; ``more`` for its context."""
    manager = TaskManager(app.context(at.id, **more), hosts or [at], flush_s)
    manager.start()
    try:
        yield manager
    finally:
        manager.stop()


@contextmanager
def served(
    app: App,
    at: HostAddress,
    token: str | None = None,
    hosts: list[HostAddress] | None = None,
    **more: Any,
) -> Iterator[TaskManager]:
    """A started manager behind a Flight server; ``more`` for its context."""
    with managed(app, at, hosts, **more) as manager:
        jobs = SnapshotJobs(manager, (app.root / "snapshots").as_uri())
        server = FlightHost(manager, at.flight_url, token, jobs)
        try:
            yield manager
        finally:
            server.shutdown()
            jobs.stop()


def publish(app: App, hosts: Sequence[HostAddress] = ()) -> int:
    """A driver's claim in the topology topic; returns its epoch."""
    return write_claim(app.kafka, app.topology, hosts=hosts)


def claim(
    client: FlightHostClient | TaskManager, app: App, epoch: int, partition: int = 0
) -> Marker:
    """As drivers do: again while the task is opening."""
    deadline = deadline_in(30)
    while True:
        try:
            return client.claim(app.name, partition, epoch)
        except Unavailable:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)
