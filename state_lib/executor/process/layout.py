"""Keys of a processor's stores: one entry for each element of a list and key of a map, and timers.

Lengths (4 bytes) and numbers (8 bytes) are big-endian. The length before a grouping key separates
its entries from those of a key that it is a prefix of. (docs/adr/0024)
"""

from __future__ import annotations

import operator
import struct
from contextlib import suppress
from typing import SupportsIndex

from state_lib.keys import after_prefix

MIN_MS, MAX_MS = -(2**63), 2**63 - 1
"""The range of timers' expiries."""
PRESENT = b"\x01"
"""The value of an entry whose key has all information."""
BY_TIME, BY_KEY, EXPIRIES, ENDS = b"\x00", b"\x01", b"\x02", b"\x03"
"""First bytes of entries of the store of timers, by their kind."""
_LENGTH, _NUMBER = struct.Struct(">I"), struct.Struct(">Q")
_ENDS = struct.Struct(">QQ")
_LONG = 8


def prefixed(key: bytes) -> bytes:
    """``length ‖ key``: the prefix of the entries of one grouping key."""
    return _LENGTH.pack(len(key)) + key


def split(raw: bytes) -> tuple[bytes, bytes]:
    """The grouping key, and the rest: the inverse of `prefixed`."""
    (size,) = _LENGTH.unpack_from(raw)
    end = _LENGTH.size + size
    return raw[_LENGTH.size : end], raw[end:]


def within(prefix: bytes) -> tuple[bytes, bytes | None]:
    """Bounds of all keys with a prefix: the first one, and the end, exclusive."""
    return prefix, after_prefix(prefix)


# ---------------------------------------------------------------------- lists


def element(key: bytes, number: int) -> bytes:
    """The key of a list's element; they sort by number."""
    return prefixed(key) + _NUMBER.pack(number)


def number_of(element_key: bytes) -> int:
    """The number of an element."""
    (number,) = _NUMBER.unpack(element_key[-_LONG:])
    return int(number)


def ends_key(state: str, key: bytes) -> bytes:
    """The key of a list's ends."""
    return ENDS + prefixed(state.encode()) + key


def pack_ends(first: int, following: int) -> bytes:
    """Numbers of the first element, and of the next one to be appended."""
    return _ENDS.pack(first, following)


def unpack_ends(raw: bytes | None) -> tuple[int, int]:
    """The inverse of `pack_ends`; (0, 0) for an empty list."""
    if raw is None:
        return 0, 0
    first, following = _ENDS.unpack(raw)
    return first, following


# ---------------------------------------------------------------------- times


def ordered(time_ms: SupportsIndex) -> bytes:
    """Eight bytes that sort as the times do, also before 1970.

    Raises:
        ValueError: it is no integer of 64 bits; NumPy's integers are taken.
    """
    whole = None
    with suppress(TypeError):
        whole = None if isinstance(time_ms, bool) else operator.index(time_ms)
    if whole is None or not MIN_MS <= whole <= MAX_MS:
        raise ValueError(f"a time is a whole number of ms of 64 bits, not {time_ms!r}")
    return _NUMBER.pack(whole - MIN_MS)


def time_of(raw: bytes) -> int:
    """The inverse of `ordered`."""
    (number,) = _NUMBER.unpack(raw)
    return int(number) + MIN_MS


def timer(expiry_ms: SupportsIndex, key: bytes) -> bytes:
    """The key of a timer; they sort by expiry, then key."""
    return BY_TIME + ordered(expiry_ms) + key


def split_timer(raw: bytes) -> tuple[int, bytes]:
    """Expiry and grouping key of a `timer`."""
    return time_of(raw[1 : 1 + _LONG]), raw[1 + _LONG :]


def timer_of(key: bytes, expiry_ms: SupportsIndex) -> bytes:
    """The key of the same timer among those of its grouping key."""
    return BY_KEY + prefixed(key) + ordered(expiry_ms)


def expiry_of(timer_of_key: bytes) -> int:
    """Expiry of a `timer_of`."""
    return time_of(timer_of_key[-_LONG:])


def expiring(expiry_ms: int, state: str, entry: bytes) -> bytes:
    """The key that has the expiry of a state's entry; they sort by time."""
    return EXPIRIES + ordered(expiry_ms) + prefixed(state.encode()) + entry


def split_expiring(raw: bytes) -> tuple[int, str, bytes]:
    """Time, state and entry of an `expiring`."""
    state, entry = split(raw[1 + _LONG :])
    return time_of(raw[1 : 1 + _LONG]), state.decode(), entry
