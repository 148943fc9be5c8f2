"""A processor's reads and changes of its stores in one exchange; changes are sent at the end.

Changes of a key are pending until its handler has ended: `keep` or `drop`. A read looks at pending
changes first, then at kept ones, then at values fetched ahead, then at the store.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol

import pyarrow as pa
from sortedcontainers import SortedDict

from state_lib.stores.pages import PAGE_ROWS, Page

Entry = tuple[bytes, bytes]
_FIRST_ROWS = 64
"""Rows of a range's first page, as most ranges are short. Each further page has four times more."""
_MOST_BYTES = 64 << 20
"""About how many bytes of entries that were read on demand are cached."""
_OVERHEAD = 200
"""Bytes of a cached entry beside key and value."""


class Stored(Protocol):
    """The part of an exchange that reads and writes stores; see `state_lib.executor.exchange`."""

    def get(self, store: str, keys: pa.BinaryArray) -> pa.BinaryArray:
        """Values of keys."""

    def page(self, store: str, lower: bytes | None, upper: bytes | None, rows: int) -> Page:
        """The first entries of a range."""

    def put(
        self, store: str, keys: pa.BinaryArray, values: pa.BinaryArray, timestamps: pa.Int64Array
    ) -> None:
        """Changes."""


class OpenExchange(Stored, Protocol):
    """The part of an exchange that a run needs."""

    def output(
        self, topic: str, keys: pa.BinaryArray, values: pa.BinaryArray, timestamps: pa.Int64Array
    ) -> None:
        """Records for an output topic."""


class Missing:
    """Nothing is known of an entry; None means that there is none."""


MISSING = Missing()


class Buffer:
    """The buffer of one processor, task and batch.

    Args:
        stored: the exchange.
        stores: names of the processor's stores.
        plain: those of which no range is ever read.
    """

    def __init__(self, stored: Stored, stores: Iterable[str], plain: Collection[str] = ()) -> None:
        self._stored = stored
        names = list(stores)
        self._ahead: dict[str, dict[bytes, bytes | None]] = {name: {} for name in names}
        self._read: dict[str, dict[bytes, bytes | None]] = {name: {} for name in names}
        self._read_bytes = 0
        self._changed: dict[str, SortedDict[bytes, tuple[bytes | None, int]]] = {
            name: {} if name in plain else SortedDict() for name in names
        }
        self._largest = 0
        self._aside: dict[str, dict[bytes, bytes | None]] = {name: {} for name in names}
        self.broken: BaseException | None = None
        """Why a read has failed: the processor may have caught the error, and lacks its state."""
        self.waited_s = 0.0
        """Seconds spent in reads."""

    # ------------------------------------------------------------------ one key

    def keep(self, time_ms: int) -> None:
        """Keep pending changes, with that time as their timestamp."""
        at = max(time_ms, 0)
        for store, changes in self._aside.items():
            if changes:
                changed = self._changed[store]
                for key, value in changes.items():
                    changed[key] = value, at
                changes.clear()
        self._largest = 0

    def drop(self) -> None:
        """Drop pending changes."""
        for changes in self._aside.values():
            changes.clear()
        self._largest = 0

    @property
    def largest(self) -> int:
        """Bytes of the largest pending entry."""
        return self._largest

    # ------------------------------------------------------------------ reads and changes

    def put(self, store: str, key: bytes, value: bytes | None) -> None:
        """Add a pending change; None deletes."""
        self._aside[store][key] = value
        if value is not None and len(key) + len(value) > self._largest:
            self._largest = len(key) + len(value)

    def get(self, store: str, key: bytes) -> bytes | None:
        """The value of an entry."""
        found = self.own(store, key)
        if not isinstance(found, Missing):
            return found
        ahead = self._ahead[store]
        if key in ahead:
            return ahead[key]
        read = self._read[store]
        if key not in read:
            self.look(store, [key])
        return read[key]

    def own(self, store: str, key: bytes) -> bytes | Missing | None:
        """An entry as changed by this batch; `MISSING` if it was not changed."""
        aside = self._aside[store]
        if key in aside:
            return aside[key]
        changed: tuple[bytes | None, int] | None = self._changed[store].get(key)
        return MISSING if changed is None else changed[0]

    def fetch(self, store: str, keys: Iterable[bytes]) -> None:
        """Read values of keys ahead, all at once; they are kept to the end of the batch."""
        ahead = self._ahead[store]
        ahead.update(self._values(store, {key for key in keys if key not in ahead}))

    def look(self, store: str, keys: Iterable[bytes]) -> None:
        """Read values that are needed next, all at once, into the bounded cache."""
        ahead, read = self._ahead[store], self._read[store]
        found = self._values(store, {key for key in keys if key not in ahead and key not in read})
        if found and self._read_bytes > _MOST_BYTES:
            for one in self._read.values():
                one.clear()
            self._read_bytes = 0
        read.update(found)
        self._read_bytes += sum(len(k) + len(v or b"") + _OVERHEAD for k, v in found.items())

    def entries(self, store: str, lower: bytes, upper: bytes | None) -> Iterator[Entry]:
        """Entries with ``lower <= key < upper`` as they are now, by key, a page at a time."""
        mine = self._own_within(store, lower, upper)
        return self._joined(store, lower, upper, mine)

    def stored(self, store: str, lower: bytes, upper: bytes | None) -> Iterator[list[Entry]]:
        """Pages of the store's entries, without changes of this batch."""
        rows = _FIRST_ROWS
        while True:
            with self._noting():
                page = self._stored.page(store, lower, upper, rows)
            if page.entries:
                yield page.entries
            if not page.more:
                return
            lower = page.entries[-1][0] + b"\0"
            rows = min(rows * 4, PAGE_ROWS)

    def changes(self, store: str, lower: bytes, upper: bytes | None) -> Iterator[bytes]:
        """Keys of kept changes that are no deletions, ascending."""
        changed = self._changed[store]
        keys = changed.irange(lower, upper, inclusive=(True, False))
        return (key for key in keys if changed[key][0] is not None)

    def send(self) -> None:
        """Send all kept changes to the exchange."""
        for store, changed in self._changed.items():
            if changed:
                keys, said = zip(*sorted(changed.items()), strict=True)
                values, times = zip(*said, strict=True)
                self._stored.put(
                    store,
                    pa.array(keys, pa.binary()),
                    pa.array(values, pa.binary()),
                    pa.array(times, pa.int64()),
                )

    # ------------------------------------------------------------------ inside

    def _values(self, store: str, keys: Collection[bytes]) -> dict[bytes, bytes | None]:
        if not keys:
            return {}
        wanted = sorted(keys)
        with self._noting():
            values = self._stored.get(store, pa.array(wanted, pa.binary())).to_pylist()
        return dict(zip(wanted, values, strict=True))

    @contextmanager
    def _noting(self) -> Iterator[None]:
        began = time.monotonic()
        try:
            yield
        except StopIteration as error:  # generators would turn it into a RuntimeError
            self.broken = ConnectionError("the host has ended the exchange")
            raise self.broken from error
        except BaseException as error:
            self.broken = error
            raise
        finally:
            self.waited_s += time.monotonic() - began

    def _own_within(
        self, store: str, lower: bytes, upper: bytes | None
    ) -> list[tuple[bytes, bytes | None]]:
        changed = self._changed[store]
        keys = changed.irange(lower, upper, inclusive=(True, False))
        mine = {key: changed[key][0] for key in keys}
        aside = self._aside[store].items()
        mine |= {k: v for k, v in aside if lower <= k and (upper is None or k < upper)}
        return sorted(mine.items())

    def _joined(
        self,
        store: str,
        lower: bytes,
        upper: bytes | None,
        mine: Sequence[tuple[bytes, bytes | None]],
    ) -> Iterator[Entry]:
        at = 0
        for page in self.stored(store, lower, upper):
            for key, value in page:
                while at < len(mine) and mine[at][0] < key:
                    yield from _live(mine[at])
                    at += 1
                if at < len(mine) and mine[at][0] == key:
                    yield from _live(mine[at])
                    at += 1
                else:
                    yield key, value
        for one in mine[at:]:
            yield from _live(one)


def _live(entry: tuple[bytes, bytes | None]) -> Iterator[Entry]:
    key, value = entry
    if value is not None:
        yield key, value
