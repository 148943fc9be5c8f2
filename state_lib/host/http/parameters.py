"""Parameters that routes share, resolved and judged before a route runs.

Resolvers are coroutines so that FastAPI calls them in place: they wait for nothing.
"""

from __future__ import annotations

from typing import Annotated, NamedTuple

from fastapi import Depends, Path, Query

from state_lib.host.http.cursor import Cursor
from state_lib.host.http.lookup import Tasks, owned_tasks, spec_of, task_of_key, topology_of
from state_lib.host.tasks import TaskManager
from state_lib.specs import StoreSpec, Topology
from state_lib.task import StateTask
from state_lib.times import MAX_MS, MIN_MS, parse_time

MOST_ENTRIES = 10_000

Key = Annotated[
    str, Path(description="utf8: the text; int64: decimal; bytes: hexadecimal; others: JSON.")
]
FromKey = Annotated[str | None, Query(alias="from", description="First key, inclusive.")]
ToKey = Annotated[str | None, Query(alias="to", description="Last key, inclusive.")]
Prefix = Annotated[
    str | None, Query(description="Start of the key: text of utf8 keys, hexadecimal of bytes keys.")
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

    def owned_tasks(self) -> list[StateTask]:
        """See `lookup.owned_tasks`."""
        return owned_tasks(self.tasks, self.topology)

    def task_of_key(self, key: bytes) -> StateTask:
        """See `lookup.task_of_key`."""
        return task_of_key(self.tasks, self.topology, key)


async def _any_store(tasks: Tasks, app: _App, store: _Store) -> Target:
    topology = topology_of(tasks, app)
    return Target(tasks, topology, spec_of(topology, store))


async def _key_value(tasks: Tasks, app: _App, store: _Store) -> Target:
    topology = topology_of(tasks, app)
    return Target(tasks, topology, spec_of(topology, store, windows=False))


async def _window(tasks: Tasks, app: _App, store: _Store) -> Target:
    topology = topology_of(tasks, app)
    return Target(tasks, topology, spec_of(topology, store, windows=True))


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
