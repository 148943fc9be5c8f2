"""States of a processor over its buffer: Spark's classes, with our reads and writes.

All are of the current key. Expired values count as absent.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pyspark.sql.streaming.stateful_processor import ListState, MapState, ValueState

from state_lib.executor.process import layout
from state_lib.executor.process.buffer import Buffer
from state_lib.executor.process.codec import RowCodec
from state_lib.executor.process.schemas import struct_of
from state_lib.processing import Processor, State

Row = tuple[Any, ...]


class Misused(RuntimeError):
    """A processor uses a state in a way that can never work."""


@dataclass
class Scene:
    """What all states of a processor share.

    Attributes:
        buffer: of its stores.
        timers: name of the store of timers, which also has expiries and ends of lists.
        now_ms: time by which entries expire.
        key: the current one; None outside of handlers.
    """

    buffer: Buffer
    timers: str
    now_ms: int
    key: bytes | None = None

    def of(self, state: str) -> bytes:
        """The current key. Raises Misused if there is none, as in ``init``."""
        if self.key is None:
            raise Misused(f"state {state!r} belongs to a key, and there is none here")
        return self.key


class Entries:
    """Packed entries of one state, with their expiry."""

    def __init__(self, scene: Scene, processor: Processor, state: State) -> None:
        self.scene, self.name, self.is_list = scene, state.name, state.kind == "list"
        self.store = processor.store(state.name)
        self._ttl_ms = state.ttl_ms
        self._codec = RowCodec(struct_of(state.schema), ttl=state.ttl_ms is not None)

    @property
    def expire(self) -> bool:
        """Whether entries expire."""
        return self._ttl_ms is not None

    def get(self, entry: bytes) -> Row | None:
        """A row; None if it is absent or has expired."""
        raw = self.scene.buffer.get(self.store, entry)
        return None if raw is None or self._is_over(raw) else self._codec.unpack(raw)

    def packed(self, row: Row) -> bytes:
        """A row in the form for `put`; its time to live begins now. Raises TypeError for others."""
        return self._codec.pack(row, self._expires)

    def put(self, entry: bytes, packed: bytes) -> None:
        """Set a row."""
        if (expires := self._expires) is not None:
            told = layout.expiring(expires, self.name, entry)
            self.scene.buffer.put(self.scene.timers, told, layout.PRESENT)
        self.scene.buffer.put(self.store, entry, packed)

    def delete(self, entry: bytes) -> None:
        """Remove a row. Its expiry stays in the store of timers, and has no effect then."""
        self.scene.buffer.put(self.store, entry, None)

    def within(self, prefix: bytes) -> Iterator[tuple[bytes, Row]]:
        """Rows with a prefix that have not expired, by key, as they are now."""
        found = self.scene.buffer.entries(self.store, *layout.within(prefix))
        return ((entry, self._codec.unpack(raw)) for entry, raw in found if not self._is_over(raw))

    def clear(self, prefix: bytes) -> None:
        """Remove all with a prefix, expired ones too."""
        for entry, _ in self.scene.buffer.entries(self.store, *layout.within(prefix)):
            self.delete(entry)

    def expired(self, entry: bytes) -> bool:
        """Whether it exists and has expired."""
        raw = self.scene.buffer.get(self.store, entry)
        return raw is not None and self._is_over(raw)

    @property
    def _expires(self) -> int | None:
        """The expiry (ms) of a row that is set now."""
        return None if self._ttl_ms is None else self.scene.now_ms + self._ttl_ms

    def _is_over(self, raw: bytes) -> bool:
        if self._ttl_ms is None:
            return False
        expires = self._codec.expires(raw)
        return expires is not None and expires <= self.scene.now_ms


class Value(ValueState):
    """A value by grouping key."""

    def __init__(self, entries: Entries) -> None:
        self._entries = entries

    @property
    def _key(self) -> bytes:
        return self._entries.scene.of(self._entries.name)

    def exists(self) -> bool:
        """Whether there is one."""
        return self.get() is not None

    def get(self) -> Row | None:
        """The value; None if there is none."""
        return self._entries.get(self._key)

    def update(self, newValue: Row) -> None:
        """Set it."""
        self._entries.put(self._key, self._entries.packed(newValue))

    def clear(self) -> None:
        """Remove it."""
        self._entries.delete(self._key)


class List(ListState):
    """A list by grouping key, an entry for each element. Appends read no element."""

    def __init__(self, entries: Entries) -> None:
        self._entries = entries

    @property
    def _key(self) -> bytes:
        return self._entries.scene.of(self._entries.name)

    def exists(self) -> bool:
        """Whether it has elements."""
        first, following = self._ends()
        if first == following or not self._entries.expire:
            return first != following
        return next(self.get(), None) is not None

    def get(self) -> Iterator[Row]:
        """Elements as they are now, in order, a page at a time."""
        return (row for _, row in self._entries.within(layout.prefixed(self._key)))

    def put(self, newState: list[Row]) -> None:
        """Replace all elements; if one does not fit the schema, nothing changes."""
        packed = [self._entries.packed(row) for row in newState]
        self.clear()
        self._append(packed)

    def appendValue(self, newState: Row) -> None:
        """Append an element."""
        self.appendList([newState])

    def appendList(self, newState: list[Row]) -> None:
        """Append elements, all or none."""
        self._append([self._entries.packed(row) for row in newState])

    def clear(self) -> None:
        """Remove all elements."""
        first, following = self._ends()
        for number in range(first, following):
            self._entries.delete(layout.element(self._key, number))
        self._set_ends(0, 0)

    def _append(self, packed: list[bytes]) -> None:
        first, following = self._ends()
        for raw in packed:
            self._entries.put(layout.element(self._key, following), raw)
            following += 1
        self._set_ends(first, following)

    def _ends(self) -> tuple[int, int]:
        scene, at = self._entries.scene, layout.ends_key(self._entries.name, self._key)
        return layout.unpack_ends(scene.buffer.get(scene.timers, at))

    def _set_ends(self, first: int, following: int) -> None:
        scene, at = self._entries.scene, layout.ends_key(self._entries.name, self._key)
        ends = layout.pack_ends(first, following) if following > first else None
        scene.buffer.put(scene.timers, at, ends)


class Map(MapState):
    """A map by grouping key, an entry for each of its keys, sorted by their packed bytes."""

    def __init__(self, entries: Entries, keys: RowCodec) -> None:
        self._entries, self._keys = entries, keys

    @property
    def _prefix(self) -> bytes:
        return layout.prefixed(self._entries.scene.of(self._entries.name))

    def exists(self) -> bool:
        """Whether it has entries."""
        return next(self._entries.within(self._prefix), None) is not None

    def getValue(self, key: Row) -> Row | None:
        """The value of a key; None if there is none."""
        return self._entries.get(self._entry(key))

    def containsKey(self, key: Row) -> bool:
        """Whether there is a value."""
        return self.getValue(key) is not None

    def updateValue(self, key: Row, value: Row) -> None:
        """Set the value of a key; nothing is read."""
        self._entries.put(self._entry(key), self._entries.packed(value))

    def iterator(self) -> Iterator[tuple[Row, Row]]:
        """Keys and values as they are now, a page at a time."""
        prefix = self._prefix
        found = self._entries.within(prefix)
        return ((self._keys.unpack(entry[len(prefix) :]), row) for entry, row in found)

    def keys(self) -> Iterator[Row]:
        """Keys as they are now."""
        return (key for key, _ in self.iterator())

    def values(self) -> Iterator[Row]:
        """Values as they are now."""
        return (row for _, row in self.iterator())

    def removeKey(self, key: Row) -> None:
        """Remove a key; nothing is read."""
        self._entries.delete(self._entry(key))

    def clear(self) -> None:
        """Remove all entries, by one scan of the keys."""
        self._entries.clear(self._prefix)

    def _entry(self, key: Row) -> bytes:
        return self._prefix + self._keys.pack(key)
