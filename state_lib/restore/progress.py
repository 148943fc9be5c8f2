"""The progress of a task's restore, for listings and for streams to clients."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

Event = dict[str, Any]
"""``event``: fetch, start, batch, end or error; and the arguments of `RestoreListener`."""


class RestoreProgress:
    """A `RestoreListener` that remembers and passes on. Calls may come from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._stores: dict[str, dict[str, int]] = {}
        self._followers: list[queue.SimpleQueue[Event]] = []

    def clear(self) -> None:
        """It is over."""
        with self._lock:
            self._stores.clear()

    def stores(self) -> dict[str, dict[str, int]]:
        """Stores whose replay has begun: ``start``, ``end``, next ``offset``, ``records``."""
        with self._lock:
            return {store: dict(one) for store, one in self._stores.items()}

    @contextmanager
    def follow(self) -> Iterator[queue.SimpleQueue[Event]]:
        """Events from now on."""
        events: queue.SimpleQueue[Event] = queue.SimpleQueue()
        with self._lock:
            self._followers.append(events)
        try:
            yield events
        finally:
            with self._lock:
                self._followers.remove(events)

    def on_restore_start(self, task: str, store: str, start: int, end: int) -> None:
        """See `RestoreListener`."""
        with self._lock:
            self._stores[store] = {"start": start, "end": end, "offset": start, "records": 0}
        self._tell("start", task, store=store, start=start, end=end)

    def on_batch_restored(self, task: str, store: str, records: int, offset: int) -> None:
        """See `RestoreListener`."""
        with self._lock:
            one = self._stores[store]
            one["records"] += records
            one["offset"] = offset
        self._tell("batch", task, store=store, records=records, offset=offset)

    def on_restore_end(self, task: str, store: str, records: int) -> None:
        """See `RestoreListener`."""
        with self._lock:
            self._stores[store]["offset"] = self._stores[store]["end"]
        self._tell("end", task, store=store, records=records)

    def on_snapshot_fetched(self, task: str, done: int, total: int) -> None:
        """See `RestoreListener`."""
        self._tell("fetch", task, done=done, total=total)

    def on_restore_error(self, task: str, why: str) -> None:
        """See `RestoreListener`."""
        self._tell("error", task, why=why)

    def _tell(self, event: str, task: str, **more: Any) -> None:
        with self._lock:
            followers = list(self._followers)
        for follower in followers:
            follower.put({"event": event, "task": task, **more})
