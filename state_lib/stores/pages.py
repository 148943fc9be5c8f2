"""A range of a store, one page after another: what is large is never held whole."""

from __future__ import annotations

from typing import NamedTuple

import pyarrow as pa

from state_lib.errors import InvalidRequest
from state_lib.stores.interfaces import BytesStore

PAGE_BYTES = 1 << 20
"""Of keys and values; the entry that goes beyond it is the last one of its page."""
PAGE_ROWS = 4096


class Page(NamedTuple):
    """Entries as stored, by key. ``more``: others follow within the bounds."""

    entries: list[tuple[bytes, bytes]]
    more: bool

    def column(self) -> pa.BinaryArray:
        """As one column: key, value, key, value …, and a null at the end if more follow."""
        flat: list[bytes | None] = [part for entry in self.entries for part in entry]
        return pa.array([*flat, None] if self.more else flat, pa.binary())

    @classmethod
    def of(cls, column: pa.BinaryArray) -> Page:
        """The inverse of `column`."""
        flat: list[bytes] = column.to_pylist()
        return cls(list(zip(flat[::2], flat[1::2], strict=False)), bool(len(flat) % 2))


def page_of(store: BytesStore, lower: bytes | None, upper: bytes | None, rows: int) -> Page:
    """The first entries with ``lower <= key < upper``, at most ``rows`` and about `PAGE_BYTES`.

    Raises:
        InvalidRequest: a window store, whose entries lie in segments, or no rows asked for.
    """
    if store.spec.is_window or rows < 1:
        raise InvalidRequest(f"store {store.spec.name!r} has no pages of {rows} entries")
    entries: list[tuple[bytes, bytes]] = []
    size = 0
    with store.scan(lower, upper) as found:
        for entry in found:
            if len(entries) == rows or size >= PAGE_BYTES:
                return Page(entries, more=True)
            entries.append(entry)
            size += len(entry[0]) + len(entry[1])
    return Page(entries, more=False)
