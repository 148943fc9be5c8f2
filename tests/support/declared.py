"""Declarations as plain data, for tests that need stores and topics, and no JVM."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from state_lib.declaration import (
    ORDER_FIELDS,
    Aggregation,
    Declaration,
    Expression,
    Field,
    Kept,
    Op,
    Source,
)
from state_lib.serdes.kinds import Kind
from state_lib.specs import StoreSpec

Of = tuple[Op, Kind]


def counting(app: str, sources: Mapping[str, str], partitions: int = 4, **kept: Any) -> Declaration:
    """Counts lines of text: topic → store. ``kept`` as `Kept` takes it."""
    return Declaration(app, partitions, tuple(count(t, s, **kept) for t, s in sources.items()))


def count(topic: str, store: str, **kept: Any) -> Aggregation:
    """Counts the lines of a topic."""
    spec = StoreSpec(store, "timestamped-key-value", key_serde="utf8", value_serde="int64")
    fields = {"count": Field("count", "int64", of_rows=True)}
    return Aggregation(
        Source(topic, "text"),
        (),
        Expression("value"),
        {},
        Kept(spec, "utf8", fields, **{"key_name": "value", **kept}),
    )


def keeping(**fields: Of | None) -> Kept:
    """Fields by operation and type; None counts rows."""
    made = {
        name: Field("count", "int64", of_rows=True) if of is None else Field(*of)
        for name, of in fields.items()
    }
    layout: list[Any] = [[name, f.type] for name, f in made.items()]
    if any(f.op == "last" for f in made.values()):
        layout = [*map(list, ORDER_FIELDS), *layout]
    spec = StoreSpec("s", "timestamped-key-value", value_serde={"struct": layout})
    return Kept(spec, "bytes", made)
