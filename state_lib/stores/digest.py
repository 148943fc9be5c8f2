"""A digest of a store that does not depend on order, backend or the way the store was built.

Sum modulo 2^128 of xxh3_128 over ``key length (4B BE) ‖ key ‖ value length (4B BE) ‖ value`` of
every live entry. A sum, not an xor: an entry that counts twice must show.
"""

from __future__ import annotations

from collections.abc import Iterable
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
        if not store.spec.is_window:
            return digest(entries)
        return digest(entry for entry in entries if store.live(entry[0], clock))
