"""``/v1/apps/{app}/stores/{store}/…``: keys, ranges, windows, counts."""

from __future__ import annotations

from fastapi import APIRouter, Response

from state_lib.errors import NotFound
from state_lib.host.http import models
from state_lib.host.http.failures import answer
from state_lib.host.http.lookup import serialized
from state_lib.host.http.parameters import (
    AnyStore,
    FromKey,
    Key,
    KeyValueStore,
    Paging,
    Prefix,
    Times,
    ToKey,
    WindowStore,
)
from state_lib.host.http.reads import count_rows, read_page
from state_lib.host.http.selection import KeyRange, WindowRange
from state_lib.host.http.shapes import Shape, position_of, positions_of
from state_lib.host.json_forms import prefix_bytes
from state_lib.stores.values import after

AT = "/apps/{app}/stores/{store}"
router = APIRouter(tags=["queries"])


@router.get(AT + "/keys/{key:path}", response_model=models.Found, summary="The value of a key")
def point(at: KeyValueStore, key: Key) -> Response:
    """As the owner of the key's partition has it; any other host asks that one."""
    raw = serialized(at.spec, key)
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


@router.get(AT + "/range", response_model=models.EntryPage, summary="Entries in key order")
def key_range(
    at: KeyValueStore,
    page: Paging,
    first: FromKey = None,
    last: ToKey = None,
    prefix: Prefix = None,
) -> Response:
    """Over the tasks that this host owns, merged by serialized key (negative int64 sort last)."""
    selection = KeyRange(
        None if first is None else serialized(at.spec, first),
        None if last is None else after(serialized(at.spec, last)),
        b"" if prefix is None else prefix_bytes(at.spec.key_serde, prefix),
    )
    found = read_page(at.owned_tasks(), at.store, selection, page.limit, page.cursor)
    return answer(Shape(at.app, at.spec).page(found))


@router.get(
    AT + "/windows/{key:path}", response_model=models.WindowPage, summary="Windows of a key"
)
def window_fetch(at: WindowStore, page: Paging, times: Times, key: Key) -> Response:
    """By start. Expired windows never show. Any host answers, as for `keys`."""
    raw = serialized(at.spec, key)
    selection = WindowRange(times.first, times.last, key=raw)
    found = read_page([at.task_of_key(raw)], at.store, selection, page.limit, page.cursor)
    return answer(Shape(at.app, at.spec).page(found))


@router.get(AT + "/windows", response_model=models.WindowPage, summary="Windows of all keys")
def window_range(at: WindowStore, page: Paging, times: Times, prefix: Prefix = None) -> Response:
    """Over the tasks that this host owns: by segment of time, then key, then start."""
    start = b"" if prefix is None else prefix_bytes(at.spec.key_serde, prefix)
    selection = WindowRange(times.first, times.last, prefix=start)
    found = read_page(at.owned_tasks(), at.store, selection, page.limit, page.cursor)
    return answer(Shape(at.app, at.spec).page(found))


@router.get(AT + "/count", response_model=models.Count, summary="Number of live entries")
def count(at: AnyStore) -> Response:
    """Exact, by reading every entry of this host's tasks; estimates stand in the store list."""
    selection = WindowRange() if at.spec.is_window else KeyRange()
    counts, markers = count_rows(at.owned_tasks(), at.store, selection)
    body = {"app": at.app, "store": at.store, "count": sum(counts.values()), "by_task": counts}
    return answer(body | {"position": positions_of(markers)})
