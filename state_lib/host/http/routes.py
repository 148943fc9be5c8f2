"""``/v1/apps…``: what a host knows and has, and queries: keys, ranges, windows, counts."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from fastapi import APIRouter, Response

from state_lib.errors import NotFound, Unavailable
from state_lib.host.http import answers
from state_lib.host.http.answers import Shape, position_of, positions_of
from state_lib.host.http.failures import answer
from state_lib.host.http.parameters import (
    AnyStore,
    FromKey,
    Key,
    KeyValueStore,
    Paging,
    Prefix,
    Tasks,
    Times,
    ToKey,
    WindowStore,
    owned_partitions,
    topology_of,
)
from state_lib.host.reads import count_rows, read_page
from state_lib.host.sizes import approximate_size
from state_lib.host.tasks import TaskManager
from state_lib.keys import after
from state_lib.specs import StoreSpec, Topology
from state_lib.stores.selection import KeyRange, WindowRange
from state_lib.task import StateTask

AT = "/apps/{app}/stores/{store}"
listing = APIRouter(tags=["listing"])
queries = APIRouter(tags=["queries"])


@listing.get("/apps", response_model=answers.Apps, summary="Applications")
def apps(tasks: Tasks) -> Response:
    """Those whose driver has claimed tasks of this host, now or before a restart."""
    known = sorted(tasks.apps.values(), key=lambda topology: topology.app)
    return answer({"host": tasks.context.host_id, "apps": [_app(tasks, t) for t in known]})


@listing.get("/apps/{app}/stores", response_model=answers.Stores, summary="Stores and tasks")
def stores(tasks: Tasks, app: str) -> Response:
    """An application's stores, with what this host has of each, and this host's tasks."""
    topology = topology_of(tasks, app)
    owned = [tasks.tasks.get((app, p)) for p in owned_partitions(tasks, topology)]
    present = [task for task in owned if task is not None]
    waiting = tasks.not_ready
    return answer(
        {
            "app": app,
            "host": tasks.context.host_id,
            "partitions": topology.partitions,
            "stores": [_store(spec, present) for spec in topology.stores],
            "tasks": [_task(tasks, task, waiting.get(task.name)) for task in present],
        }
    )


@listing.get(
    "/apps/{app}/tasks/{partition}/restore",
    response_model=answers.Restore,
    summary="How the restore goes that somebody asked for",
)
def restore(tasks: Tasks, app: str, partition: int) -> Response:
    """The newest one since this host started; 404 if nobody has asked for one."""
    topology_of(tasks, app)
    return answer(tasks.restores.last(tasks.owned(app, partition)).to_json())


@queries.get(AT + "/keys/{key:path}", response_model=answers.Found, summary="The value of a key")
def point(at: KeyValueStore, key: Key) -> Response:
    """As the owner of the key's partition has it; any other host asks that one."""
    raw = at.serialized(key)
    task = at.task_of_key(raw)
    marker, (value,) = task.get_many(at.store, [raw])
    where = {"app": at.app, "store": at.store}
    position = {task.name: position_of(marker)}
    if value is None:
        raise NotFound(
            f"store {at.store!r} of {at.app!r} has no key {key!r}",
            **where,
            key=key,
            position=position,
        )
    shown = Shape(at.app, at.spec).entry(raw, value)
    return answer({**where, "task": task.name, **shown, "position": position})


@queries.get(AT + "/range", response_model=answers.EntryPage, summary="Entries in key order")
def key_range(
    at: KeyValueStore,
    page: Paging,
    first: FromKey = None,
    last: ToKey = None,
    prefix: Prefix = None,
) -> Response:
    """Over the tasks that this host owns, merged by serialized key (negative int64 sort last)."""
    selection = KeyRange(
        None if first is None else at.serialized(first),
        None if last is None else after(at.serialized(last)),
        at.beginning(prefix),
    )
    found = read_page(at.owned_tasks(), at.store, selection, page.limit, page.cursor)
    return answer(Shape(at.app, at.spec).page(found))


@queries.get(
    AT + "/windows/{key:path}", response_model=answers.WindowPage, summary="Windows of a key"
)
def window_fetch(at: WindowStore, page: Paging, times: Times, key: Key) -> Response:
    """By start. Expired windows never show. Any host answers, as for `keys`."""
    raw = at.serialized(key)
    selection = WindowRange(times.first, times.last, key=raw)
    found = read_page([at.task_of_key(raw)], at.store, selection, page.limit, page.cursor)
    return answer(Shape(at.app, at.spec).page(found))


@queries.get(AT + "/windows", response_model=answers.WindowPage, summary="Windows of all keys")
def window_range(at: WindowStore, page: Paging, times: Times, prefix: Prefix = None) -> Response:
    """Over the tasks that this host owns: by segment of time, then key, then start."""
    selection = WindowRange(times.first, times.last, prefix=at.beginning(prefix))
    found = read_page(at.owned_tasks(), at.store, selection, page.limit, page.cursor)
    return answer(Shape(at.app, at.spec).page(found))


@queries.get(AT + "/count", response_model=answers.Count, summary="Number of live entries")
def count(at: AnyStore) -> Response:
    """Exact, by reading every entry of this host's tasks; estimates stand in the store list."""
    selection = WindowRange() if at.spec.is_window else KeyRange()
    counts, markers = count_rows(at.owned_tasks(), at.store, selection)
    body = {"app": at.app, "store": at.store, "count": sum(counts.values()), "by_task": counts}
    return answer(body | {"position": positions_of(markers)})


def _app(tasks: TaskManager, topology: Topology) -> dict[str, Any]:
    return {
        "app": topology.app,
        "partitions": topology.partitions,
        "stores": [s.name for s in topology.stores],
        "sources": topology.sources,
        "outputs": [o.topic for o in topology.outputs],
        "tasks": [f"{topology.app}/{p}" for p in owned_partitions(tasks, topology)],
    }


def _store(spec: StoreSpec, tasks: list[StateTask]) -> dict[str, Any]:
    sizes = [approximate_size(task, spec.name) for task in tasks]
    shown = asdict(spec)
    del shown["max_bytes"]
    return shown | {
        "segment_interval_ms": spec.segment_interval_ms if spec.is_window else 0,
        "approximate_entries": sum(entries for entries, _ in sizes),
        "size_bytes": sum(size for _, size in sizes),
    }


def _task(tasks: TaskManager, task: StateTask, waiting: str | None) -> dict[str, Any]:
    try:
        with task.view() as (marker, _):
            pass
    except Unavailable as error:
        marker, waiting = None, waiting or error.message
    return {
        "task": task.name,
        "partition": task.partition,
        "host": tasks.context.host_id,
        "state": tasks.state_of(task) if marker is None else "open",
        "reason": waiting if marker is None else None,
        "restoring": task.progress.stores() if marker is None else {},
        "written_at": None if marker is None else marker.written_at,
        "dropped": {} if marker is None else marker.dropped,
        "position": None if marker is None else position_of(marker),
    }
