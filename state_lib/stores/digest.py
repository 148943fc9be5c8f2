"""A digest of a store that does not depend on order, backend or the way the store was built.

Sum modulo 2^128 of xxh3_128 over ``key length (4B BE) ‖ key ‖ value length (4B BE) ‖ value`` of
every live entry. A sum, not an xor: an entry that counts twice must show.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import NamedTuple

from xxhash import xxh3_128_intdigest

from state_lib.stores.interfaces import BytesStore

_MODULUS = 1 << 128


class StoreDigest(NamedTuple):
    """The sum, and how many entries it is over."""

    total: int
    entries: int

    def __str__(self) -> str:
        return f"{self.total:032x}/{self.entries}"

    @classmethod
    def parse(cls, text: str) -> StoreDigest:
        """The inverse of ``str``. Raises ValueError."""
        total, _, entries = text.partition("/")
        return cls(int(total, 16), int(entries))


def added(parts: Iterable[StoreDigest]) -> StoreDigest:
    """The digest of several sets of entries together."""
    parts = list(parts)
    return StoreDigest(sum(p.total for p in parts) % _MODULUS, sum(p.entries for p in parts))


def digest(entries: Iterable[tuple[bytes, bytes]]) -> StoreDigest:
    """The digest of entries, in any order."""
    total = count = 0
    for key, value in entries:
        total += xxh3_128_intdigest(
            b"%b%b%b%b" % (len(key).to_bytes(4, "big"), key, len(value).to_bytes(4, "big"), value)
        )
        count += 1
    return StoreDigest(total % _MODULUS, count)


def store_digest(store: BytesStore, clock: int) -> StoreDigest:
    """The digest of what is live in a store at ``clock`` (ms)."""
    with store.scan() as entries:
        return added(digest_in_parts(store, entries, clock))


def digest_in_parts(
    store: BytesStore, entries: Iterator[tuple[bytes, bytes]], clock: int, size: int = 100_000
) -> Iterator[StoreDigest]:
    """Digests of ``size`` scanned entries each, live at ``clock``, so that progress is visible."""
    windowed = store.spec.is_window
    while chunk := list(islice(entries, size)):
        yield digest(e for e in chunk if not windowed or store.live(e[0], clock))
