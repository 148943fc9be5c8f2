"""Which declaration may follow which: pure functions over two topologies.

A job may add stores and sources, change outputs, backends, bounds and retention. What it must not
do is contradict the state that exists: then it is most likely another job under the same name.
"""

from __future__ import annotations

from state_lib.specs import StoreSpec, Topology

_FIXED = ("kind", "key_serde", "value_serde", "window_size_ms", "state")
"""Of a store: what its entries, and their keys, mean."""


def contradictions(published: Topology, declared: Topology) -> list[str]:
    """How a declaration contradicts the published one, in words; empty if it may follow it."""
    found: list[str] = []
    if declared.partitions != published.partitions:
        found.append(f"it has {published.partitions} partitions, this job {declared.partitions}")
    if lost := sorted(set(published.sources) - set(declared.sources)):
        found.append(f"it reads {lost}, this job reads {sorted(declared.sources)}")
    names = sorted(s.name for s in declared.stores)
    for store in published.stores:
        new = declared.store(store.name)
        if new is None:
            found.append(f"it has a store {store.name!r}, this job's stores are {names}")
        else:
            found += _changed(store, new)
    return found


def _changed(old: StoreSpec, new: StoreSpec) -> list[str]:
    return [
        f"its store {old.name!r} has {name}={getattr(old, name)!r}, this job's has "
        f"{getattr(new, name)!r}"
        for name in _FIXED
        if _plain(getattr(old, name)) != _plain(getattr(new, name))
    ]


def _plain(value: object) -> object:
    """Without the difference between lists and tuples, which JSON does not keep."""
    if isinstance(value, list | tuple):
        return [_plain(v) for v in value]
    if isinstance(value, dict):
        return {k: _plain(v) for k, v in value.items()}
    return value
