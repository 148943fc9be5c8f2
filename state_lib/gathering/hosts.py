"""What hosts say of an application's tasks and of their disks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from state_lib.apps.hosts import Held, Hosts
from state_lib.checks.facts import HostSeen, StoreSeen, TaskSeen
from state_lib.errors import HoldfastError, Unauthorized
from state_lib.protocol.addresses import HostAddress

_AT_ONCE = 64


def hosts_seen(
    addresses: Sequence[HostAddress],
    token: str | None,
    app: str,
    timeout_s: float,
    *,
    brief: bool = False,
) -> tuple[HostSeen, ...]:
    """One for each configured host; one that is slower than ``timeout_s`` or fails is away.

    Args:
        addresses: of all hosts.
        token: that they want.
        app: whose tasks; one that a host does not know has none there.
        timeout_s: for all of them at the same time.
        brief: only the states of tasks and the disks, which is soon said by a busy host as well.
    """

    def one(address: HostAddress) -> HostSeen:
        try:
            (held,) = Hosts([address], token).held(app, timeout_s, brief=brief)
        except HoldfastError as error:  # it refuses the token, or is no state host
            return HostSeen(address.id, error.message, refused=isinstance(error, Unauthorized))
        return _host(held, app)

    with ThreadPoolExecutor(max(1, min(_AT_ONCE, len(addresses)))) as pool:
        return tuple(pool.map(one, addresses))


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
