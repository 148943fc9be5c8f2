"""Timers of a processor, ordered by expiry, and once more by key: docs/adr/0024."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import SupportsIndex

from state_lib.executor.process import layout
from state_lib.executor.process.buffer import Buffer, Missing

MOST = 100_000
"""Run with one commit; the others with the next: the same ones whenever it is repeated."""
_LOWER, _UPPER = layout.within(layout.BY_TIME)


class Timers:
    """Of one processor, task and batch.

    Args:
        buffer: of its stores.
        store: the name of that of timers.
    """

    def __init__(self, buffer: Buffer, store: str) -> None:
        self._buffer, self._store = buffer, store
        self._heap: list[bytes] = []
        """Those that this batch has made and may yet run."""
        self._new: list[bytes] = []
        """Those that were registered since the last one ran."""
        self._at = b""
        """The timer that runs, or ran last."""
        self._stored: Iterator[bytes] = iter(())
        self._head: bytes | None = None
        """The first of the store's that is not gone through."""
        self.is_cut = False
        """Whether `due` has left some that are due, for there were more than `MOST`."""

    def register(self, key: bytes, expiry_ms: SupportsIndex) -> None:
        """Add a timer; nothing if it is there. Raises ValueError for a time without 64 bits."""
        made = layout.timer(expiry_ms, key)
        self._buffer.put(self._store, made, layout.PRESENT)
        self._new.append(made)
        self._buffer.put(self._store, layout.timer_of(key, expiry_ms), layout.PRESENT)

    def delete(self, key: bytes, expiry_ms: SupportsIndex) -> None:
        """Remove a timer; nothing if it is not there."""
        self._buffer.put(self._store, layout.timer(expiry_ms, key), None)
        self._buffer.put(self._store, layout.timer_of(key, expiry_ms), None)

    def of(self, key: bytes) -> Iterator[int]:
        """Expiries of a key's timers, ascending."""
        bounds = layout.within(layout.BY_KEY + layout.prefixed(key))
        for raw, _ in self._buffer.entries(self._store, *bounds):
            yield layout.expiry_of(raw)

    def due(
        self, until_ms: int, ahead: Callable[[Sequence[bytes]], None]
    ) -> Iterator[tuple[int, bytes]]:
        """Timers up to a time, by expiry and key; what changed is kept between two of them.

        At most `MOST`. One that is registered meanwhile runs if it comes later in that order:
        nothing runs for ever. `least` says what is left.

        Args:
            until_ms: the time.
            ahead: is told the keys of each page of timers before they run.
        """
        last = layout.timer(until_ms, b"")[:9]  # those of that very time begin so, and are due
        self._heap = list(self._buffer.changes(self._store, _LOWER, _UPPER))  # sorted: a heap
        self._stored = self._one_by_one(last, ahead)
        self._head = next(self._stored, None)
        for number in itertools.count():
            raw = self._next()
            if raw is None or raw[:9] > last:
                return
            if number == MOST:
                self.is_cut = True
                return
            self._at = self._taken(raw)
            self._new.clear()
            yield layout.split_timer(raw)
            for made in self._new:
                if made > self._at and self._is_kept(made):
                    heapq.heappush(self._heap, made)

    def least(self) -> int | None:
        """Expiry of the first timer that is left; None if there is none. Call it after `due`."""
        kept = next(self._buffer.changes(self._store, _LOWER, _UPPER), None)
        while self._head is not None and not self._is_there(self._head):
            self._head = next(self._stored, None)
        found = [raw for raw in (kept, self._head) if raw is not None]
        return layout.split_timer(min(found))[0] if found else None

    # ------------------------------------------------------------------ inside

    def _one_by_one(self, last: bytes, ahead: Callable[[Sequence[bytes]], None]) -> Iterator[bytes]:
        for page in self._buffer.stored(self._store, _LOWER, _UPPER):
            ahead([layout.split_timer(raw)[1] for raw, _ in page if raw[:9] <= last])
            for raw, _ in page:
                yield raw

    def _next(self) -> bytes | None:
        """The first that is still there, and has not run."""
        while True:
            found = [raw for raw in (self._heap[0] if self._heap else None, self._head) if raw]
            if not found:
                return None
            raw = min(found)
            if self._is_there(raw) and raw > self._at:
                return raw
            self._taken(raw)

    def _taken(self, raw: bytes) -> bytes:
        while self._heap and self._heap[0] == raw:
            heapq.heappop(self._heap)
        if self._head == raw:
            self._head = next(self._stored, None)
        return raw

    def _is_there(self, raw: bytes) -> bool:
        """What the store holds may have been removed since, and what was made, too."""
        own = self._buffer.own(self._store, raw)
        return isinstance(own, Missing) or own is not None

    def _is_kept(self, raw: bytes) -> bool:
        """Whether a handler that registered it came to its end."""
        own = self._buffer.own(self._store, raw)
        return not isinstance(own, Missing) and own is not None
