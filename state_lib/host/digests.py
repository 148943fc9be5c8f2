"""Digests of a task's stores, all at one marker, sent part by part."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from typing import Any

from state_lib.errors import Unavailable
from state_lib.stores.digest import added, digest_in_parts
from state_lib.task.reads import bytes_store_of
from state_lib.task.state_task import StateTask


def digests(task: StateTask, stores: Sequence[str] | None) -> Iterator[dict[str, Any]]:
    """First ``{marker, offsets}``, then ``{store, entries}`` as they are read, ``{store, digest}``.

    Commits go on meanwhile: snapshots of all stores are taken at once and held until the end.
    ``offsets`` are those of the changelogs at the marker: topic → ``[topic id, next offset]``.

    Args:
        task: to read.
        stores: names, or None for all.

    Raises:
        NotFound: no such store.
        Unavailable: the task is not open, or was closed meanwhile.
    """
    with task.guarded(), ExitStack() as held:
        with task.view() as (marker, opened):
            names = [s.name for s in task.topology.stores] if stores is None else list(stores)
            found = {name: bytes_store_of(opened, task.topology, name) for name in names}
            scans = {name: held.enter_context(store.scan()) for name, store in found.items()}
            checkpoint = opened.checkpoint()
        offsets = {} if checkpoint is None else dict(checkpoint.offsets)
        yield {"marker": marker.to_json(), "offsets": offsets}
        for name, entries in scans.items():
            parts = []
            for part in digest_in_parts(found[name], entries, marker.stream_time_ms):
                parts.append(part)
                yield {"store": name, "entries": part.entries}
            with task.view() as (_, now):
                if now is not opened:  # closing the task ends iterators early
                    raise Unavailable(f"task {task.name} was closed meanwhile", task=task.name)
            yield {"store": name, "digest": str(added(parts))}
