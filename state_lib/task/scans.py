"""Scans of an open task's store at one marker, as Arrow columns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING

from state_lib.errors import Unavailable
from state_lib.protocol.marker import Marker
from state_lib.stores.columns import Columns, columns, live, selected
from state_lib.task.reads import bytes_store_of

if TYPE_CHECKING:
    from state_lib.task.state_task import StateTask


def scan_columns(
    task: StateTask, store: str, keys: Sequence[bytes] | None = None
) -> tuple[Marker, Iterator[Columns]]:
    """Live entries, and the marker that they are all at; commits go on meanwhile.

    The iterator holds a snapshot until it is exhausted or closed.

    Args:
        task: to read.
        store: name.
        keys: serialized keys, for window stores without the window; None for all.

    Raises:
        NotFound: no such store.
        Unavailable: the task is not open, or, from the iterator, was closed meanwhile.
    """
    held = ExitStack()
    wanted = None if keys is None else sorted(set(keys))
    with task.guarded(), task.view() as (marker, opened):
        found = bytes_store_of(opened, task.topology, store)
        entries = held.enter_context(selected(found, wanted))

    def parts() -> Iterator[Columns]:
        with task.guarded(), held:
            for part in columns(entries):
                lives = live(found.spec, part, marker.stream_time_ms)
                if len(lives.keys):
                    yield lives
            with task.view() as (_, now):
                if now is not opened:  # closing the task ends iterators early
                    why = f"task {task.name} was closed during a scan"
                    raise Unavailable(why, task=task.name)

    return marker, parts()
