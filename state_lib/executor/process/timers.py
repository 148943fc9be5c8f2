"""Timers of a processor, stored by expiry and also by key: docs/adr/0024."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import SupportsIndex

from state_lib.executor.process import layout
from state_lib.executor.process.buffer import Buffer, Missing

MOST = 100_000
"""Most timers run by one commit; the next one runs others. A repeat runs the same ones."""
_LOWER, _UPPER = layout.within(layout.BY_TIME)


class Timers:
    """The timers of one processor, task and batch.

    Args:
        buffer: of its stores.
        store: name of the store of timers.
    """

    def __init__(self, buffer: Buffer, store: str) -> None:
        self._buffer, self._store = buffer, store
        self._heap: list[bytes] = []
        """Timers registered by this batch that may still run in it."""
        self._new: list[bytes] = []
        """Timers registered since the last one ran."""
        self._at = b""
        """The timer that runs, or ran last."""
        self._stored: Iterator[bytes] = iter(())
        self._head: bytes | None = None
        """The first timer of the store that was not read yet."""
        self.is_cut = False
        """Whether `due` has left timers, as more than `MOST` were due."""

    def register(self, key: bytes, expiry_ms: SupportsIndex) -> None:
        """Add a timer, if it is not there. Raises ValueError for a time beyond 64 bits."""
        made = layout.timer(expiry_ms, key)
        self._buffer.put(self._store, made, layout.PRESENT)
        self._new.append(made)
        self._buffer.put(self._store, layout.timer_of(key, expiry_ms), layout.PRESENT)

    def delete(self, key: bytes, expiry_ms: SupportsIndex) -> None:
        """Remove a timer, if it is there."""
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
        """Timers up to a time, by expiry and key; changes must be kept between two of them.

        At most `MOST`. A timer that is registered meanwhile runs too if it comes later in that
        order, so this ends. `least` returns what is left.

        Args:
            until_ms: the time.
            ahead: called with the keys of each page of timers before they run.
        """
        last = layout.timer(until_ms, b"")[:9]  # prefix of timers of that time, which are due
        self._heap = list(self._buffer.changes(self._store, _LOWER, _UPPER))  # sorted, so a heap
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
        """Expiry of the first timer that is left, after `due`; None if there is none."""
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
        """The first timer that still exists and has not run."""
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
        """Whether a timer of the store or of this batch was not removed since."""
        own = self._buffer.own(self._store, raw)
        return isinstance(own, Missing) or own is not None

    def _is_kept(self, raw: bytes) -> bool:
        """Whether the handler that registered it has ended without an error."""
        own = self._buffer.own(self._store, raw)
        return not isinstance(own, Missing) and own is not None
