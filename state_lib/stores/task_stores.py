"""All stores of one task, behind one atomic write: data, changelog offsets and marker together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson

from state_lib.errors import StoreFull
from state_lib.protocol.marker import Marker
from state_lib.specs import StoreSpec, Topology
from state_lib.stores.bytes_store import bytes_store
from state_lib.stores.interfaces import BytesStore, Changes, Engine
from state_lib.stores.memory.engine import MemoryEngine
from state_lib.stores.memory.options import MemoryOptions
from state_lib.stores.rocksdb.engine import RocksDBEngine
from state_lib.stores.rocksdb.options import RocksDBOptions
from state_lib.stores.segments import (
    META_FAMILY,
    is_expired_segment,
    segments_of,
    store_of,
)

_CHECKPOINT_KEY = b"checkpoint"
_MEMORY = "memory/"
NO_DIRECTORY = "memory"
"""Of memory stores: rebuilt from their changelogs, so nothing is ever there but in snapshots."""
StoreChanges = Mapping[str, tuple[Sequence[bytes], Sequence[bytes | None]]]
"""Store name → keys and stored values as parallel lists; None deletes."""


@dataclass(frozen=True)
class Checkpoint:
    """What a directory holds: state at ``marker``, having applied each changelog up to an offset.

    ``offsets``: changelog topic → ``[topic id, next offset]``, of stores that the directory holds.
    ``layouts``: store → `layout_of` its specification when it was written.
    """

    marker: Marker
    offsets: Mapping[str, list[Any]] = field(default_factory=dict)
    layouts: Mapping[str, str] = field(default_factory=dict)

    def to_bytes(self) -> bytes:
        """As stored in the metadata family."""
        plain = {"marker": self.marker.to_json(), "offsets": self.offsets, "layouts": self.layouts}
        return orjson.dumps(plain)

    @classmethod
    def from_bytes(cls, raw: bytes) -> Checkpoint:
        """As read from the metadata family."""
        data = orjson.loads(raw)
        return cls(Marker.from_json(data["marker"]), data["offsets"], data.get("layouts", {}))

    def holds(self, store: str) -> bool:
        """Whether the store's entries are in the directory; those of memory stores never are."""
        return not self.layouts.get(store, _MEMORY).startswith(_MEMORY)

    def without(self, stores: Mapping[str, str]) -> Checkpoint:
        """The same for a directory that does not hold some stores; ``stores``: name → changelog."""
        topics = set(stores.values())
        return Checkpoint(
            self.marker,
            {topic: at for topic, at in self.offsets.items() if topic not in topics},
            {name: layout for name, layout in self.layouts.items() if name not in stores},
        )


def layout_of(spec: StoreSpec) -> str:
    """What must not change under stored entries: where they lie and how their values begin."""
    interval = spec.segment_interval_ms if spec.is_window else 0
    return f"{spec.backend}/{spec.kind}/{interval}"


class TaskStores:
    """Opens the engines of a task and its stores.

    Args:
        topology: of the application.
        path: directory of the RocksDB database; created if missing. Memory stores leave nothing
            there.
        options: of RocksDB.
        read_only: for a checkpoint or a fetched snapshot; see `RocksDBEngine`.

    Raises:
        StateCorrupt: the directory cannot be opened.
    """

    def __init__(
        self, topology: Topology, path: Path, options: RocksDBOptions, *, read_only: bool = False
    ) -> None:
        self.path = path
        self.specs = {s.name: s for s in topology.stores}
        self.rocks = RocksDBEngine(path, options, read_only=read_only)
        bounds = {s.name: s.max_bytes for s in topology.stores if s.backend == "memory"}
        self.memory = MemoryEngine(path / NO_DIRECTORY, MemoryOptions(max_bytes_of=bounds))
        self.stores: dict[str, BytesStore] = {
            s.name: bytes_store(s, self.engine(s.name)) for s in topology.stores
        }

    def are_of(self, topology: Topology) -> bool:
        """Whether these are the stores that an application declares."""
        return tuple(self.specs.values()) == tuple(topology.stores)

    def engine(self, store: str) -> Engine:
        """The engine that holds a store."""
        return self.memory if self.specs[store].backend == "memory" else self.rocks

    def checkpoint(self) -> Checkpoint | None:
        """What was last written with the data, or None for a new directory."""
        raw = self.rocks.get(META_FAMILY, _CHECKPOINT_KEY)
        return None if raw is None else Checkpoint.from_bytes(raw)

    @property
    def layouts(self) -> dict[str, str]:
        """`layout_of` every store."""
        return {name: layout_of(spec) for name, spec in self.specs.items()}

    def check_room(self, changes: StoreChanges, clock: int) -> None:
        """Raise StoreFull now if a memory store could not take these changes.

        What is expired at ``clock`` needs no room: it is dropped first.
        """
        memory = self._route(changes)[1]
        try:
            self.memory.check_room(memory)
        except StoreFull:
            in_memory = [s for name, s in self.stores.items() if self.engine(name) is self.memory]
            for store in in_memory:
                for family in store.expired_families(clock):
                    self.memory.drop(family)
            self.memory.check_room(memory)

    def clear(self, store: str) -> None:
        """Remove every entry of a store, also those of another layout or backend."""
        for engine in (self.rocks, self.memory):
            for family in engine.families():
                if store_of(family) == store:
                    engine.drop(family)

    def write(self, changes: StoreChanges, checkpoint: Checkpoint | None) -> None:
        """Apply changes and checkpoint: one atomic write in RocksDB, then memory stores."""
        rocks, memory = self._route(changes)
        if checkpoint is not None:
            rocks[META_FAMILY] = ([_CHECKPOINT_KEY], [checkpoint.to_bytes()])
        if rocks:
            self.rocks.write(rocks)
        if memory:
            self.memory.write(memory)

    def drop_expired(self, clock: int) -> list[str]:
        """Drop segments that no live window is in; call it after a flush that covers that time."""
        expired = [
            (self.engine(name), family)
            for name, store in self.stores.items()
            for family in store.expired_families(clock)
        ]
        for engine, family in expired:
            engine.drop(family)
        return [family for _, family in expired]

    def oldest_live(self, clock: int) -> dict[str, int]:
        """Of each window store with live segments: no live window starts before that time (ms)."""
        found = {}
        for spec in (s for s in self.specs.values() if s.is_window):
            segments = segments_of(spec.name, self.engine(spec.name).families())
            live = [s for s in segments if not is_expired_segment(s, clock, spec)]
            if live:
                start = live[0] * spec.segment_interval_ms
                found[spec.name] = max(start, clock - spec.retention_ms + 1)
        return found

    def close(self) -> None:
        """Close the engines; what RocksDB has not flushed is replayed at the next opening."""
        self.rocks.close()
        self.memory.close()

    def _route(self, changes: StoreChanges) -> tuple[dict[str, Changes], dict[str, Changes]]:
        rocks: dict[str, Changes] = {}
        memory: dict[str, Changes] = {}
        for name, (keys, values) in changes.items():
            target = memory if self.specs[name].backend == "memory" else rocks
            target.update(self.stores[name].changes(keys, values))
        return rocks, memory
