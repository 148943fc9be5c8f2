"""Stores of a test as Python's own values, as queries give them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from state_lib.keys import partition_for, split_timestamp, split_window_key, window_key
from state_lib.protocol.json_forms import value_json
from state_lib.serdes import Serde, serde_from
from state_lib.specs import StoreSpec
from state_lib.testing.keys import Keys
from state_lib.testing.tasks import Tasks

Current = Callable[[], Tasks]


class _View:
    """Of one store; every look runs the batch that waits."""

    def __init__(self, spec: StoreSpec, tasks: Current) -> None:
        self._spec, self._tasks = spec, tasks
        self._keys = Keys(spec.key_serde)
        self._values: Serde[Any] = serde_from(spec.value_serde)

    def approximateNumEntries(self) -> int:
        """How many entries are live; in a test, exactly."""
        return sum(1 for _ in self._entries())

    def _get(self, inner: bytes, composite: bytes) -> Any:
        tasks = self._tasks()
        task = tasks[partition_for(inner, tasks.topology.partitions)]
        return self._shown(task.get_many(self._spec.name, [composite])[1][0])

    def _entries(self) -> Iterator[tuple[bytes, bytes]]:
        for task in self._tasks():
            yield from task.scan(self._spec.name)[1]

    def _shown(self, stored: bytes | None) -> Any:
        if stored is None:
            return None
        if self._spec.is_timestamped:
            stored, _ = split_timestamp(stored)
        return value_json(self._spec.value_serde, self._values.deserialize(stored))


class KeyValueStoreView(_View):
    """Of a key-value store: made by `TopologyTestDriver.getKeyValueStore`."""

    def get(self, key: Any) -> Any:
        """The value of a key; None if there is none. Raises SerdeError for another type of key.

        A key of several columns is a tuple or a mapping of them, and is shown as a `Row`.
        """
        raw = self._keys.raw(key)
        return self._get(raw, raw)

    def all(self) -> dict[Any, Any]:
        """Every entry."""
        return {self._keys.shown(k): self._shown(v) for k, v in self._entries()}


class WindowStoreView(_View):
    """Of a window store: made by `TopologyTestDriver.getWindowStore`. Times in ms since 1970."""

    def get(self, key: Any, start: int) -> Any:
        """The value of the window that starts then; None if there is none, or it has expired."""
        raw = self._keys.raw(key)
        return self._get(raw, window_key(raw, start))

    def fetch(
        self, key: Any, time_from: int | None = None, time_to: int | None = None
    ) -> dict[int, Any]:
        """A key's windows that start from ``time_from`` up to and with ``time_to``, by start."""
        wanted = self._keys.shown(self._keys.raw(key))
        found = {start: value for (k, start), value in self.all().items() if k == wanted}
        return {
            start: found[start]
            for start in sorted(found)
            if (time_from is None or start >= time_from) and (time_to is None or start <= time_to)
        }

    def all(self) -> dict[tuple[Any, int], Any]:
        """Every live window, by key and start."""
        out = {}
        for composite, stored in self._entries():
            key, start, _ = split_window_key(composite)
            out[self._keys.shown(key), start] = self._shown(stored)
        return out
