"""Reads from the stores of an open task."""

from __future__ import annotations

from collections.abc import Sequence

from state_lib.specs import Topology
from state_lib.stores.interfaces import BytesStore
from state_lib.stores.task_stores import TaskStores


def bytes_store_of(stores: TaskStores, topology: Topology, store: str) -> BytesStore:
    """The store of that name.

    Raises:
        NotFound: lists the stores that exist.
    """
    return stores.stores[topology.required(store).name]


def live_values(found: BytesStore, keys: Sequence[bytes], clock: int) -> list[bytes | None]:
    """Stored values of composite keys; None if absent, or expired at that stream time."""
    values = found.get_many(keys)
    if not found.spec.is_window:
        return values
    return [
        v if v is not None and found.live(k, clock) else None
        for k, v in zip(keys, values, strict=True)
    ]
