"""What hosts say of an application's tasks and of their disks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from state_lib.apps.hosts import Held, Hosts
from state_lib.checks.facts import HostSeen, StoreSeen, TaskSeen
from state_lib.errors import Unauthorized


def hosts_seen(hosts: Hosts, app: str, timeout_s: float) -> tuple[HostSeen, ...]:
    """One for each configured host; one that is slower than ``timeout_s`` is away."""
    try:
        held = hosts.held(app, timeout_s)
    except Unauthorized as error:
        return tuple(HostSeen(at.id, error.message) for at in hosts.addresses)
    return tuple(_host(one, app) for one in held)


def _host(held: Held, app: str) -> HostSeen:
    disk = held.disk
    return HostSeen(
        id=held.host,
        away=held.away,
        tasks=tuple(_task(t) for t in held.apps.get(app, {}).get("tasks", ())),
        disk_total=disk.get("total", 0),
        disk_free=disk.get("free", 0),
        disk_used=tuple((at, used) for at, used in disk.get("used", ())),
    )


def _task(said: Mapping[str, Any]) -> TaskSeen:
    """Of a host of an older version little is known."""
    return TaskSeen(
        partition=said["partition"],
        state=said.get("state") or ("open" if said["waits"] is None else "opening"),
        why=said["waits"],
        bytes=said.get("bytes", 0),
        durable=said.get("durable", {}),
        stores={name: StoreSeen(**store) for name, store in said.get("stores", {}).items()},
    )
