"""What has to be written so that a store is again as it was: a merge-join, both sides sorted."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from state_lib.keys import START, start_of
from state_lib.stores.interfaces import BytesStore
from state_lib.stores.segments import segment_id

Entry = tuple[bytes, bytes]
Difference = tuple[bytes, bytes | None]
"""A key and its stored value; None deletes."""


def differences(live: BytesStore, past: BytesStore, now: int, then: int) -> Iterator[Difference]:
    """What leads from a store to what it was, sorted as `BytesStore.scan` sorts.

    Of windows, what is expired at ``now`` and was not at ``then`` counts as unknown: some replicas
    have dropped it, and brokers may have. It is written whether or not it is here too.

    Args:
        live: as it is; may be written to meanwhile.
        past: as it was; the same kind of store, with segments of the same width.
        now: clock of the one (ms).
        then: clock of the other.
    """
    windowed = live.spec.is_window
    with live.scan() as ours, past.scan() as theirs:
        for key, here, there in _joined(ours, theirs, _order(live)):
            unknown = False
            if windowed:
                if not live.live(key, then):
                    continue
                unknown = not live.live(key, now)
            if unknown or here != there:
                yield key, there


def forgotten(live: BytesStore, now: int, then: int) -> Callable[[bytes], bool]:
    """Whether a key of a window store is of those that only the log may know: see `differences`."""
    return lambda key: live.live(key, then) and not live.live(key, now)


def _order(store: BytesStore) -> Callable[[bytes], Any]:
    if not store.spec.is_window:
        return lambda key: key
    interval = store.spec.segment_interval_ms

    def of_window(key: bytes) -> tuple[int, bytes]:
        return segment_id(start_of(key[START]), interval), key

    return of_window


def _joined(
    ours: Iterator[Entry], theirs: Iterator[Entry], order: Callable[[bytes], Any]
) -> Iterator[tuple[bytes, bytes | None, bytes | None]]:
    """Every key of either side, with its value here and there."""
    one, other = next(ours, None), next(theirs, None)
    while one is not None or other is not None:
        if other is None or (one is not None and order(one[0]) < order(other[0])):
            key, here, there = *(one or (b"", b"")), None
        elif one is None or order(other[0]) < order(one[0]):
            key, here, there = other[0], None, other[1]
        else:
            key, here, there = one[0], one[1], other[1]
        yield key, here, there
        if one is not None and one[0] == key:
            one = next(ours, None)
        if other is not None and other[0] == key:
            other = next(theirs, None)
