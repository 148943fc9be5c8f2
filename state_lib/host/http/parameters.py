"""Parameters that routes share: from what a URL says to stores and tasks, without side effects.

A query never makes a host adopt an application that it does not know: opening a task fences its
owner, and reading must not do that. Resolvers are coroutines so that FastAPI calls them in place:
they wait for nothing.
"""

from __future__ import annotations

from typing import Annotated, NamedTuple

from fastapi import Depends, Path, Query, Request

from state_lib.errors import InvalidRequest
from state_lib.host.reads import Cursor
from state_lib.host.tasks import TaskManager
from state_lib.keys import partition_for
from state_lib.names import check_name
from state_lib.protocol.json_forms import parse_key, parse_prefix, prefix_bytes
from state_lib.protocol.placement import assign
from state_lib.serdes import serde_from
from state_lib.specs import StoreSpec, Topology
from state_lib.task import StateTask
from state_lib.times import MAX_MS, MIN_MS, parse_time

MOST_ENTRIES = 10_000

Key = Annotated[
    str,
    Path(
        description="utf8: the text; int64: decimal; bytes: hexadecimal; dates, times and decimals:"
        " their text; others: JSON, of several columns an object."
    ),
]
FromKey = Annotated[str | None, Query(alias="from", description="First key, inclusive.")]
ToKey = Annotated[str | None, Query(alias="to", description="Last key, inclusive.")]
Prefix = Annotated[
    str | None,
    Query(
        description="Start of the key: text of utf8 keys, hexadecimal of bytes keys, of several"
        " columns an object with the first of them."
    ),
]
_App = Annotated[str, Path(description="Application id.")]
_Store = Annotated[str, Path(description="Store name.")]
_Limit = Annotated[int, Query(ge=1, le=MOST_ENTRIES, description="Most entries of this page.")]
_Cursor = Annotated[str | None, Query(description="`cursor` of the page before.")]
_FromTime = Annotated[
    str | None, Query(alias="from", description="First window start: ms or ISO 8601, inclusive.")
]
_ToTime = Annotated[
    str | None, Query(alias="to", description="Last window start: ms or ISO 8601, inclusive.")
]


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


def owned_partitions(tasks: TaskManager, topology: Topology) -> list[int]:
    """Partitions that this host owns."""
    owners = assign(topology.app, topology.partitions, tuple(tasks.hosts))
    return [p for p, owner in enumerate(owners) if owner.id == tasks.context.host_id]


class Target(NamedTuple):
    """A store of an application that this host knows."""

    tasks: TaskManager
    topology: Topology
    spec: StoreSpec

    @property
    def app(self) -> str:
        """The application's id."""
        return self.topology.app

    @property
    def store(self) -> str:
        """The store's name."""
        return self.spec.name

    def serialized(self, text: str) -> bytes:
        """The (inner) key that a URL means. Raises InvalidRequest, SerdeError."""
        serde = self.spec.key_serde
        return serde_from(serde).serialize(parse_key(serde, text))

    def beginning(self, prefix: str | None) -> bytes:
        """Of the keys that a URL's prefix means; empty: of all. Raises InvalidRequest."""
        serde = self.spec.key_serde
        return b"" if prefix is None else prefix_bytes(serde, parse_prefix(serde, prefix))

    def owned_tasks(self) -> list[StateTask]:
        """All tasks of this host. Raises Unavailable if one is not open."""
        return [self.tasks.task(self.app, p) for p in owned_partitions(self.tasks, self.topology)]

    def task_of_key(self, key: bytes) -> StateTask:
        """The task that a serialized (inner) key belongs to.

        Raises:
            NotOwner: naming the owner.
            Unavailable: it is not open.
        """
        return self.tasks.task(self.app, partition_for(key, self.topology.partitions))


def _target(tasks: TaskManager, app: str, store: str, *, windows: bool | None = None) -> Target:
    """A store, of the kind that the route is for (None: any).

    Raises:
        InvalidName, NotFound: as `topology_of`.
        InvalidRequest: the store is of the other kind; names the route to take.
    """
    topology = topology_of(tasks, app)
    check_name("store", store)
    spec = topology.required(store)
    if windows is not None and windows != spec.is_window:
        routes = "windows and windows/{key}" if spec.is_window else "keys/{key} and range"
        raise InvalidRequest(
            f"store {store!r} is a {spec.kind} store: ask {routes}", store=store, kind=spec.kind
        )
    return Target(tasks, topology, spec)


async def _any_store(tasks: Tasks, app: _App, store: _Store) -> Target:
    return _target(tasks, app, store)


async def _key_value(tasks: Tasks, app: _App, store: _Store) -> Target:
    return _target(tasks, app, store, windows=False)


async def _window(tasks: Tasks, app: _App, store: _Store) -> Target:
    return _target(tasks, app, store, windows=True)


class _Page(NamedTuple):
    limit: int
    cursor: Cursor | None


async def _page(limit: _Limit = 100, cursor: _Cursor = None) -> _Page:
    return _Page(limit, None if cursor is None else Cursor.from_text(cursor))


class _Span(NamedTuple):
    first: int
    last: int


async def _span(first: _FromTime = None, last: _ToTime = None) -> _Span:
    return _Span(parse_time("from", first, MIN_MS), parse_time("to", last, MAX_MS))


AnyStore = Annotated[Target, Depends(_any_store)]
KeyValueStore = Annotated[Target, Depends(_key_value)]
WindowStore = Annotated[Target, Depends(_window)]
Paging = Annotated[_Page, Depends(_page)]
Times = Annotated[_Span, Depends(_span)]
