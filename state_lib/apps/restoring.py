"""Restores tasks by plans, on the hosts that own them: for the command, and for operators."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Any

from state_lib.changelog.claims import topology_of
from state_lib.client.flight import FlightHostClient
from state_lib.config import Settings
from state_lib.errors import HoldfastError, InvalidRequest
from state_lib.kafka import Kafka
from state_lib.protocol.placement import owner_of
from state_lib.restore.plan import RestorePlan
from state_lib.restore.progress import Event
from state_lib.specs import Topology

AT_ONCE = 16
Watch = Callable[[RestorePlan, Event], None]
"""Told of a plan, and of what happens to it."""


def ask_plans(
    settings: Settings, app: str, tasks: Sequence[int] | None, source: str | None = None
) -> list[RestorePlan]:
    """The plans of some tasks, or of all, from the hosts that own them.

    Args:
        settings: where Kafka and the hosts are.
        app: application.
        tasks: partitions; None or none: all.
        source: see `make_plan`; None: the cheapest valid one.

    Raises:
        NotFound: the application never ran.
        InvalidRequest: it has no such task, or the source is not valid for one.
        Busy: a task is opening or restoring.
        Unavailable: a host cannot be reached.
    """
    wanted = require_tasks(topology_of(Kafka.of(settings), app), tasks)

    def ask(partition: int) -> RestorePlan:
        with host_of(settings, app, partition) as client:
            return RestorePlan.from_json(client.restore_plan(app, partition, source))

    with ThreadPoolExecutor(min(8, len(wanted))) as pool:
        return list(pool.map(ask, wanted))


def require_tasks(topology: Topology, tasks: Sequence[int] | None) -> list[int]:
    """Partitions asked for, or all. Raises InvalidRequest for those that there are not."""
    wanted = sorted(set(tasks)) if tasks else list(range(topology.partitions))
    if unknown := [t for t in wanted if not 0 <= t < topology.partitions]:
        raise InvalidRequest(
            f"application {topology.app!r} has tasks 0 to {topology.partitions - 1}, not {unknown}",
            unknown=unknown,
        )
    return wanted


def partition_of(app: str, task: str | int) -> int:
    """The partition that ``<app>/<partition>``, or a number, names. Raises InvalidRequest."""
    whose, _, number = str(task).rpartition("/")
    if whose not in ("", app) or not number.isascii() or not number.isdecimal():
        raise InvalidRequest(
            f"{task!r} is no task of {app!r}: they are named {app}/0, {app}/1, and so on", task=task
        )
    return int(number)


def run_plans(
    settings: Settings, app: str, plans: Sequence[RestorePlan], watch: Watch
) -> dict[str, HoldfastError]:
    """Run plans side by side and stay until all have ended; hosts go on without the caller.

    Returns:
        The failures, by task; ``watch`` is called for each with an event ``failed``.
    """

    def one(plan: RestorePlan) -> HoldfastError | None:
        partition = partition_of(app, plan.task)
        try:
            with host_of(settings, app, partition) as client:
                for event in client.restore_run(app, partition, plan.to_json()):
                    watch(plan, event)
        except HoldfastError as error:
            watch(plan, {"event": "failed", "task": plan.task, **error.to_wire()})
            return error
        return None

    if not plans:
        return {}
    with ThreadPoolExecutor(min(AT_ONCE, len(plans))) as pool:
        results = list(pool.map(one, plans))
    return {p.task: error for p, error in zip(plans, results, strict=True) if error is not None}


def begin(settings: Settings, app: str, plan: RestorePlan) -> dict[str, Any]:
    """Let its host begin a plan, or find it running or done; see `FlightHostClient.restore_start`.

    Raises:
        Busy: another plan runs.
        Unavailable: the host is away.
    """
    partition = partition_of(app, plan.task)
    with host_of(settings, app, partition) as client:
        return client.restore_start(app, partition, plan.to_json())


def host_of(settings: Settings, app: str, partition: int) -> closing[FlightHostClient]:
    """A connection to the host that owns a task."""
    address = owner_of(app, partition, settings.host_addresses)
    return closing(FlightHostClient(address, settings.read_token()))
