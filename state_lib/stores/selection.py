"""What a query looks for in one store, as slices of its families."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from state_lib.keys import SUFFIX_BYTES, after, after_prefix, split_window_key, window_key
from state_lib.specs import StoreSpec
from state_lib.stores.interfaces import Engine
from state_lib.stores.segments import segment_family, segments_of
from state_lib.times import MAX_MS, MIN_MS

_MAX_SEQ = 2**31 - 1


class Slice(NamedTuple):
    """Entries of one family with ``lower <= key < upper`` of which ``accepts`` takes some."""

    segment: int
    family: str
    lower: bytes | None
    upper: bytes | None
    accepts: Callable[[bytes], bool] | None = None

    def after(self, last: tuple[int, bytes] | None) -> Slice | None:
        """What is left of it beyond the entry of a segment and key; None if it lies before."""
        if last is None or self.segment > last[0]:
            return self
        if self.segment < last[0]:
            return None
        return self._replace(lower=max(self.lower or b"", after(last[1])))


class Selection(Protocol):
    """Entries to look for."""

    def slices(self, spec: StoreSpec, engine: Engine, clock: int) -> list[Slice]:
        """Where they are, ascending by segment; what is expired at ``clock`` (ms) is left out."""
        ...


@dataclass(frozen=True)
class KeyRange:
    """Serialized keys with ``lower <= key < upper`` (None: no bound) that have the prefix."""

    lower: bytes | None = None
    upper: bytes | None = None
    prefix: bytes = b""

    def slices(self, spec: StoreSpec, engine: Engine, clock: int) -> list[Slice]:
        """See `Selection`: one slice, since nothing expires."""
        del engine, clock
        uppers = [u for u in (self.upper, after_prefix(self.prefix)) if u is not None]
        lower = max(self.lower or b"", self.prefix)
        return [Slice(0, spec.name, lower, min(uppers, default=None))]


@dataclass(frozen=True)
class WindowRange:
    """Windows with ``first <= start <= last`` (ms), of one serialized key or of all with a prefix.

    By segment, then key, then start; of one key that is by start.
    """

    first: int = MIN_MS
    last: int = MAX_MS
    key: bytes | None = None
    prefix: bytes = b""

    def slices(self, spec: StoreSpec, engine: Engine, clock: int) -> list[Slice]:
        """See `Selection`: one slice per segment that overlaps the times."""
        low = max(self.first, clock - spec.retention_ms + 1)
        interval = spec.segment_interval_ms
        found = []
        for segment in segments_of(spec.name, engine.families()):
            first = max(low, segment * interval)
            last = min(self.last, (segment + 1) * interval - 1)
            if first <= last:
                family = segment_family(spec.name, segment)
                found.append(Slice(segment, family, *self._within(first, last)))
        return found

    def _within(self, first: int, last: int) -> tuple[bytes, bytes | None, Callable[[bytes], bool]]:
        """Bounds and filter inside one segment, whose starts all have the same sign."""
        key, prefix = self.key, self.prefix
        if key is not None:
            size = len(key) + SUFFIX_BYTES
            lower, upper = window_key(key, first), after(window_key(key, last, _MAX_SEQ))
            # A longer key may lie between the bounds.
            return lower, upper, lambda found: len(found) == size and found.startswith(key)

        def accepts(found: bytes) -> bool:
            inner, start, _ = split_window_key(found)
            return first <= start <= last and inner.startswith(prefix)

        return prefix, after_prefix(prefix), accepts
