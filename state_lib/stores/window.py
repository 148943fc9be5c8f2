"""Typed views of window stores."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from state_lib.errors import InvalidRequest
from state_lib.keys import split_window_key, window_key
from state_lib.serdes import serde_from
from state_lib.specs import SUFFIX_BYTES, StoreSpec
from state_lib.stores.bytes_store import WindowBytesStore
from state_lib.stores.interfaces import (
    Engine,
    ReadOnlyWindowStore,
    ValueAndTimestamp,
    Windowed,
    WindowStore,
)
from state_lib.stores.segments import check_store_name, is_live, segment_family, segment_id
from state_lib.stores.values import after, from_stored, to_stored

Clock = Callable[[], int]
_MIN_MS, _MAX_MS = -(2**63), 2**63 - 1
_MAX_SEQ = 2**31 - 1


class WindowReader:
    """`ReadOnlyWindowStore` over an engine. ``clock`` gives the marker's clock (ms)."""

    def __init__(self, spec: StoreSpec, engine: Engine, clock: Clock) -> None:
        if not spec.is_window:
            raise InvalidRequest(f"store {spec.name!r} is a {spec.kind} store, not a window store")
        self._spec = spec
        self._engine = engine
        self._clock = clock
        self._store = WindowBytesStore(spec, engine)
        self._keys = serde_from(spec.key_serde)
        self._values = serde_from(spec.value_serde)
        check_store_name(spec.name)

    def fetch(self, key: Any, start: int) -> ValueAndTimestamp | None:
        """See `ReadOnlyWindowStore.fetch`."""
        if not is_live(start, self._clock(), self._spec):
            return None
        family = segment_family(self._spec.name, self._segment(start))
        stored = self._engine.get(family, window_key(self._keys.serialize(key), start))
        return None if stored is None else self._value(stored)

    @contextmanager
    def fetch_range(
        self, key: Any, start_from: int, start_to: int
    ) -> Iterator[Iterator[tuple[int, ValueAndTimestamp]]]:
        """See `ReadOnlyWindowStore.fetch_range`."""
        rows = self._rows_of(self._keys.serialize(key), *self._bounds(start_from, start_to))
        try:
            yield rows
        finally:
            rows.close()

    def _rows_of(self, key: bytes, low: int, high: int) -> Any:
        """Rows of one key; longer keys whose bytes fall between the bounds are left out.

        Starts within a segment have the same sign, so byte order is time order.
        """
        for segment, first, last in self._live_segments(low, high):
            family = segment_family(self._spec.name, segment)
            upper = after(window_key(key, last, _MAX_SEQ))
            with self._engine.scan(family, window_key(key, first), upper) as entries:
                for composite, stored in entries:
                    if len(composite) != len(key) + SUFFIX_BYTES:
                        continue
                    inner, start, _ = split_window_key(composite)
                    if inner == key and first <= start <= last:
                        yield start, self._value(stored)

    @contextmanager
    def all(
        self, start_from: int | None = None, start_to: int | None = None
    ) -> Iterator[Iterator[tuple[Windowed, ValueAndTimestamp]]]:
        """See `ReadOnlyWindowStore.all`."""
        rows = self._rows(*self._bounds(start_from, start_to))
        try:
            yield rows
        finally:
            rows.close()

    def _rows(self, low: int, high: int) -> Any:
        for segment, first, last in self._live_segments(low, high):
            family = segment_family(self._spec.name, segment)
            with self._engine.scan(family, None, None) as entries:
                for composite, stored in entries:
                    inner, start, _ = split_window_key(composite)
                    if first <= start <= last:
                        window = Windowed(self._keys.deserialize(inner), start)
                        yield window, self._value(stored)

    def _bounds(self, start_from: int | None, start_to: int | None) -> tuple[int, int]:
        """The bounds, narrowed to what is live at this moment."""
        oldest = self._clock() - self._spec.retention_ms + 1
        low = _MIN_MS if start_from is None else start_from
        return max(low, oldest), _MAX_MS if start_to is None else start_to

    def _live_segments(self, low: int, high: int) -> Iterator[tuple[int, int, int]]:
        """Segments that overlap the bounds, with the first and last start to look for."""
        interval = self._spec.segment_interval_ms
        for segment in self._store.segments():
            first, last = max(low, segment * interval), min(high, (segment + 1) * interval - 1)
            if first <= last:
                yield segment, first, last

    def _segment(self, start: int) -> int:
        return segment_id(start, self._spec.segment_interval_ms)

    def _value(self, stored: bytes) -> ValueAndTimestamp:
        value: ValueAndTimestamp = from_stored(self._spec, self._values, stored)
        return value


class WindowWriter(WindowReader):
    """`WindowStore` over an engine; each put is one write: batches go through `BytesStore`."""

    def put(self, key: Any, start: int, value: object, timestamp: int) -> None:
        """See `WindowStore.put`."""
        composite = window_key(self._keys.serialize(key), start)
        stored = to_stored(self._spec, self._values, value, timestamp)
        self._engine.write(self._store.changes([composite], [stored]))

    def delete(self, key: Any, start: int) -> None:
        """See `WindowStore.delete`."""
        self.put(key, start, None, 0)


def read_only_window_store(
    spec: StoreSpec, engine: Engine, clock: Clock
) -> ReadOnlyWindowStore[Any]:
    """A view for queries; ``clock`` gives the marker's clock (ms).

    Raises:
        InvalidRequest: the store is of another kind.
        ConfigurationError: unknown serde or reserved name.
    """
    return WindowReader(spec, engine, clock)


def window_store(spec: StoreSpec, engine: Engine, clock: Clock) -> WindowStore[Any]:
    """A writable view. Raises as `read_only_window_store`."""
    return WindowWriter(spec, engine, clock)
