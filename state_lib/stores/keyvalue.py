"""Typed views of key-value and timestamped key-value stores."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from state_lib.errors import InvalidRequest
from state_lib.serdes import serde_from
from state_lib.specs import StoreSpec
from state_lib.stores.bytes_store import bytes_store
from state_lib.stores.interfaces import Engine, KeyValueStore, ReadOnlyKeyValueStore
from state_lib.stores.values import after, after_prefix, from_stored, to_stored


class KeyValueReader:
    """`ReadOnlyKeyValueStore` over an engine."""

    def __init__(self, spec: StoreSpec, engine: Engine) -> None:
        if spec.is_window:
            raise InvalidRequest(f"store {spec.name!r} is a window store, not key-value")
        self._spec = spec
        self._engine = engine
        self._store = bytes_store(spec, engine)
        self._keys = serde_from(spec.key_serde)
        self._values = serde_from(spec.value_serde)

    def get(self, key: Any) -> Any:
        """See `ReadOnlyKeyValueStore.get`."""
        stored = self._engine.get(self._spec.name, self._keys.serialize(key))
        return None if stored is None else from_stored(self._spec, self._values, stored)

    @contextmanager
    def range(self, lo: Any, hi: Any) -> Iterator[Iterator[tuple[Any, Any]]]:
        """See `ReadOnlyKeyValueStore.range`."""
        lower = None if lo is None else self._keys.serialize(lo)
        upper = None if hi is None else after(self._keys.serialize(hi))
        with self._store.scan(lower, upper) as entries:
            yield self._typed(entries)

    @contextmanager
    def prefix(self, prefix: Any) -> Iterator[Iterator[tuple[Any, Any]]]:
        """See `ReadOnlyKeyValueStore.prefix`."""
        raw = prefix if isinstance(prefix, bytes) else self._keys.serialize(prefix)
        with self._store.scan(raw, after_prefix(raw)) as entries:
            yield self._typed(entries)

    def all(self) -> Any:
        """See `ReadOnlyKeyValueStore.all`."""
        return self.range(None, None)

    def approximate_num_entries(self) -> int:
        """See `ReadOnlyKeyValueStore.approximate_num_entries`."""
        return self._engine.approximate_num_entries(self._spec.name)

    def _typed(self, entries: Iterator[tuple[bytes, bytes]]) -> Iterator[tuple[Any, Any]]:
        for key, stored in entries:
            value = from_stored(self._spec, self._values, stored)
            yield self._keys.deserialize(key), value


class KeyValueWriter(KeyValueReader):
    """`KeyValueStore` over an engine; each put is one write: batches go through `BytesStore`."""

    def put(self, key: Any, value: object, timestamp: int = 0) -> None:
        """See `KeyValueStore.put`."""
        stored = to_stored(self._spec, self._values, value, timestamp)
        self._engine.write(self._store.changes([self._keys.serialize(key)], [stored]))

    def delete(self, key: Any) -> None:
        """See `KeyValueStore.delete`."""
        self.put(key, None)


def read_only_key_value_store(spec: StoreSpec, engine: Engine) -> ReadOnlyKeyValueStore[Any, Any]:
    """A view for queries.

    Raises:
        InvalidRequest: the store is of another kind.
        ConfigurationError: unknown serde or reserved name.
    """
    return KeyValueReader(spec, engine)


def key_value_store(spec: StoreSpec, engine: Engine) -> KeyValueStore[Any, Any]:
    """A writable view. Raises as `read_only_key_value_store`."""
    return KeyValueWriter(spec, engine)
