"""What a query would find in a store."""

from __future__ import annotations

from state_lib.specs import StoreSpec
from state_lib.stores.interfaces import Engine
from state_lib.stores.selection import Selection


def selected(
    spec: StoreSpec, engine: Engine, selection: Selection, clock: int = 0
) -> list[tuple[bytes, bytes]]:
    """Keys and stored values, in the order of answers."""
    found: list[tuple[bytes, bytes]] = []
    for part in selection.slices(spec, engine, clock):
        with engine.scan(part.family, part.lower, part.upper) as entries:
            found += [(k, v) for k, v in entries if part.accepts is None or part.accepts(k)]
    return found
