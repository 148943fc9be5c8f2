"""How a window store is cut along time, and how families are named.

A segment holds the windows that start within one interval; dropping its family frees all of them
at once. ``@`` is legal in no store name, so ``<store>@<segment id>`` names are unambiguous.
"""

from __future__ import annotations

from collections.abc import Iterable

from state_lib.errors import ConfigurationError
from state_lib.specs import StoreSpec

META_FAMILY = "__meta__"
"""The family of offsets and the marker, written in the same batch as data."""

RESERVED = frozenset({META_FAMILY, "default"})
"""Names that stores cannot have; RocksDB always has a family ``default``."""


def check_store_name(name: str) -> str:
    """Return the name. Raises ConfigurationError if the engine needs it for itself."""
    if name in RESERVED:
        raise ConfigurationError(
            f"store name {name!r} is reserved: choose another", kind="store", name=name
        )
    return name


def segment_id(start_ms: int, interval_ms: int) -> int:
    """The segment of a window start; negative before 1970. 0 is always an edge."""
    return start_ms // interval_ms


def segment_family(store: str, segment: int) -> str:
    """``<store>@<segment id>``."""
    return f"{store}@{segment}"


def store_of(family: str) -> str:
    """The store that a family belongs to; ``__meta__`` for the metadata."""
    return family.rpartition("@")[0] or family


def segments_of(store: str, families: Iterable[str]) -> list[int]:
    """Ids of the segments of a store among families, oldest first."""
    return sorted(int(f.rpartition("@")[2]) for f in families if f.rpartition("@")[0] == store)


def is_live(start_ms: int, clock_ms: int, spec: StoreSpec) -> bool:
    """Whether a window of the store is not expired: ``start > clock - retention``."""
    return start_ms > clock_ms - spec.retention_ms


def is_expired_segment(segment: int, clock_ms: int, spec: StoreSpec) -> bool:
    """Whether the last start that the segment could hold is expired."""
    return not is_live((segment + 1) * spec.segment_interval_ms - 1, clock_ms, spec)
