"""From names in a URL to tasks and specifications, without side effects.

A query never makes a host adopt an application that it does not know: opening a task fences its
owner, and reading must not do that.
"""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Depends, Request

from state_lib.errors import InvalidRequest, NotFound
from state_lib.host.json_forms import parse_key
from state_lib.host.placement import assign
from state_lib.host.tasks import TaskManager
from state_lib.keys import partition_for
from state_lib.names import check_name
from state_lib.serdes import serde_from
from state_lib.specs import StoreSpec, Topology
from state_lib.task import StateTask


async def _manager(request: Request) -> TaskManager:
    tasks: TaskManager = request.app.state.tasks
    return tasks


Tasks = Annotated[TaskManager, Depends(_manager)]


def topology_of(tasks: TaskManager, app: str) -> Topology:
    """An application that this host knows.

    Raises:
        InvalidName: not a possible name.
        NotFound: lists the known ones.
        Unavailable: the host does not know all of its applications yet.
    """
    check_name("application", app)
    return tasks.app(app)


def spec_of(topology: Topology, store: str, *, windows: bool | None = None) -> StoreSpec:
    """A store, of the kind that the route is for (None: any).

    Raises:
        InvalidName, NotFound: as `topology_of`.
        InvalidRequest: the store is of the other kind; names the route to take.
    """
    check_name("store", store)
    spec = topology.store(store)
    if spec is None:
        known = [s.name for s in topology.stores]
        raise NotFound(
            f"application {topology.app!r} has no store {store!r}; its stores: {known}",
            app=topology.app,
            store=store,
            known=known,
        )
    if windows is not None and windows != spec.is_window:
        routes = "windows and windows/{key}" if spec.is_window else "keys/{key} and range"
        raise InvalidRequest(
            f"store {store!r} is a {spec.kind} store: ask {routes}", store=store, kind=spec.kind
        )
    return spec


def owned_partitions(tasks: TaskManager, topology: Topology) -> list[int]:
    """Partitions that this host owns."""
    owners = assign(topology.app, topology.partitions, tuple(tasks.hosts))
    return [p for p, owner in enumerate(owners) if owner.id == tasks.context.host_id]


def owned_tasks(tasks: TaskManager, topology: Topology) -> list[StateTask]:
    """All tasks of this host. Raises Unavailable if one is not open."""
    return [tasks.task(topology.app, p) for p in owned_partitions(tasks, topology)]


def serialized(spec: StoreSpec, text: str) -> bytes:
    """The (inner) key that a URL means, as bytes. Raises InvalidRequest, SerdeError."""
    key: Any = parse_key(spec.key_serde, text)
    return serde_from(spec.key_serde).serialize(key)


def task_of_key(tasks: TaskManager, topology: Topology, key: bytes) -> StateTask:
    """The task that a serialized (inner) key belongs to.

    Raises:
        NotOwner: naming the owner.
        Unavailable: it is not open.
    """
    return tasks.task(topology.app, partition_for(key, topology.partitions))
