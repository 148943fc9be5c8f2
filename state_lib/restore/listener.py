"""Who wants to know how a restore goes."""

from __future__ import annotations

from typing import Protocol


class RestoreListener(Protocol):
    """Told of each store's restore; calls come from the restoring thread and must return soon."""

    def on_restore_start(self, task: str, store: str, start: int, end: int) -> None:
        """Records with ``start <= offset < end`` will be replayed."""

    def on_batch_restored(self, task: str, store: str, records: int, offset: int) -> None:
        """``records`` more were applied; the next offset is ``offset``."""

    def on_restore_end(self, task: str, store: str, records: int) -> None:
        """The store stands at the end; ``records`` in all."""

    def on_snapshot_fetched(self, task: str, done: int, total: int) -> None:
        """So many bytes of a snapshot are here; what follows is its tail."""

    def on_restore_error(self, task: str, why: str) -> None:
        """The restore of a task ended without success; it may begin again."""


class Silent:
    """A listener that does nothing."""

    def on_restore_start(self, task: str, store: str, start: int, end: int) -> None:
        """Nothing."""

    def on_batch_restored(self, task: str, store: str, records: int, offset: int) -> None:
        """Nothing."""

    def on_restore_end(self, task: str, store: str, records: int) -> None:
        """Nothing."""

    def on_snapshot_fetched(self, task: str, done: int, total: int) -> None:
        """Nothing."""

    def on_restore_error(self, task: str, why: str) -> None:
        """Nothing."""


class Several:
    """Tells each of several listeners, in order."""

    def __init__(self, *listeners: RestoreListener) -> None:
        self._listeners = listeners

    def on_restore_start(self, task: str, store: str, start: int, end: int) -> None:
        """See `RestoreListener`."""
        for one in self._listeners:
            one.on_restore_start(task, store, start, end)

    def on_batch_restored(self, task: str, store: str, records: int, offset: int) -> None:
        """See `RestoreListener`."""
        for one in self._listeners:
            one.on_batch_restored(task, store, records, offset)

    def on_restore_end(self, task: str, store: str, records: int) -> None:
        """See `RestoreListener`."""
        for one in self._listeners:
            one.on_restore_end(task, store, records)

    def on_snapshot_fetched(self, task: str, done: int, total: int) -> None:
        """See `RestoreListener`."""
        for one in self._listeners:
            one.on_snapshot_fetched(task, done, total)

    def on_restore_error(self, task: str, why: str) -> None:
        """See `RestoreListener`."""
        for one in self._listeners:
            one.on_restore_error(task, why)
