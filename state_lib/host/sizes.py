"""How large a task's stores are."""

from __future__ import annotations

from state_lib.errors import Unavailable
from state_lib.task import StateTask


def approximate_size(task: StateTask, store: str) -> tuple[int, int]:
    """Entries (an estimate) and bytes of a store in a task; zeros while it is not open."""
    try:
        with task.view() as (_, opened):
            found = opened.stores.get(store)
        if found is None:  # a store declared since this task was opened
            return 0, 0
        engine, families = opened.engine(store), found.families()
        entries = sum(engine.approximate_num_entries(family) for family in families)
        return entries, sum(engine.size_bytes(family) for family in families)
    except Unavailable:
        return 0, 0
