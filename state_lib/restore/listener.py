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


class Silent:
    """A listener that does nothing."""

    def on_restore_start(self, task: str, store: str, start: int, end: int) -> None:
        """Nothing."""

    def on_batch_restored(self, task: str, store: str, records: int, offset: int) -> None:
        """Nothing."""

    def on_restore_end(self, task: str, store: str, records: int) -> None:
        """Nothing."""
