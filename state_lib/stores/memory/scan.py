"""A consistent view of a sorted dict that copies only if the dict changes meanwhile."""

from __future__ import annotations

from collections.abc import Iterator
from threading import RLock

from sortedcontainers import SortedDict


class Scan(Iterator[tuple[bytes, bytes]]):
    """Entries with ``lower <= key < upper``. Before a write the engine calls `detach`."""

    def __init__(
        self,
        entries: SortedDict[bytes, bytes] | None,
        lower: bytes | None,
        upper: bytes | None,
        lock: RLock,
        *,
        reverse: bool,
    ) -> None:
        self._entries = entries
        self._lock = lock
        self._rest: Iterator[tuple[bytes, bytes]] = iter(())
        if entries is not None:
            keys = entries.irange(lower, upper, inclusive=(True, False), reverse=reverse)
            self._rest = ((key, entries[key]) for key in keys)

    def __next__(self) -> tuple[bytes, bytes]:
        with self._lock:
            return next(self._rest)

    def detach(self, entries: SortedDict[bytes, bytes]) -> None:
        """Copy what is left if this is a view of ``entries``, which is about to change."""
        if self._entries is entries:
            self._rest = iter(list(self._rest))
            self._entries = None

    def end(self) -> None:
        """No more entries, and no more references to them."""
        self._rest = iter(())
        self._entries = None
