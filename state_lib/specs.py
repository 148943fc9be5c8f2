"""What an application is made of, as plain data: the part of a job that hosts need to know.

The driver publishes a `Topology` to ``<app>-topology``; hosts learn it from there and need none
of the application's code.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, get_args

from state_lib.errors import ConfigurationError, NotFound
from state_lib.names import check_name

StoreKind = Literal["key-value", "timestamped-key-value", "window"]
BackendName = Literal["rocksdb", "memory"]
DAY_MS = 24 * 3600 * 1000
MAX_PARTITIONS = 10_000


@dataclass(frozen=True)
class StoreSpec:
    """One named store of an application.

    Attributes:
        name: unique within the application.
        kind: decides key layout, value layout and the changelog's cleanup policy.
        backend: ``rocksdb`` or ``memory``.
        key_serde, value_serde: descriptions, as `state_lib.serdes.serde_from` takes them. For a
            window store the key serde is the inner key's.
        window_size_ms, grace_ms, retention_ms: for window stores. ``retention_ms`` is the time
            after which a window is expired, measured by the marker's stream time from its start.
        max_bytes: bound of a memory store, per task.
        state: of a stateful processor's store, what it holds; see `state_lib.processing`.
    """

    name: str
    kind: StoreKind = "key-value"
    backend: BackendName = "rocksdb"
    key_serde: Any = "bytes"
    value_serde: Any = "bytes"
    window_size_ms: int = 0
    grace_ms: int = 0
    retention_ms: int = 0
    max_bytes: int = 256 << 20
    state: str = ""

    def __post_init__(self) -> None:
        check_name("store", self.name)
        if self.kind not in get_args(StoreKind):
            raise ConfigurationError(
                f"store {self.name!r} has kind {self.kind!r}; known kinds: {get_args(StoreKind)}"
            )
        if self.backend not in get_args(BackendName):
            raise ConfigurationError(
                f"store {self.name!r} has backend {self.backend!r}; known: {get_args(BackendName)}"
            )
        if self.is_window and self.window_size_ms <= 0:
            raise ConfigurationError(
                f"window store {self.name!r} needs window_size_ms > 0, not {self.window_size_ms}"
            )
        if self.is_window and self.retention_ms < self.window_size_ms + self.grace_ms:
            raise ConfigurationError(
                f"retention of window store {self.name!r} is {self.retention_ms} ms, shorter than "
                f"window size + grace = {self.window_size_ms + self.grace_ms} ms: raise it"
            )

    @property
    def is_window(self) -> bool:
        """Whether keys carry a window start and the store is segmented."""
        return self.kind == "window"

    @property
    def is_timestamped(self) -> bool:
        """Whether the stored value starts with the record's timestamp (8 bytes, big-endian)."""
        return self.kind in ("timestamped-key-value", "window")

    @property
    def segment_interval_ms(self) -> int:
        """Width of one segment: half the retention, at least a minute (as Kafka Streams)."""
        return max(self.retention_ms // 2, 60_000)


@dataclass(frozen=True)
class OutputSpec:
    """A topic that commits write to, besides the changelogs.

    Attributes:
        topic: its name.
        store: the one whose changes it gets.
        dated: whether rows say themselves when they are, which may be at any time to come.
    """

    topic: str
    store: str
    dated: bool = False


@dataclass(frozen=True)
class Topology:
    """An application as hosts see it: names, partition count, stores, outputs, sources."""

    app: str
    partitions: int
    stores: tuple[StoreSpec, ...]
    outputs: tuple[OutputSpec, ...] = ()
    sources: tuple[str, ...] = ()
    extra: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_name("application", self.app)
        if not 1 <= self.partitions <= MAX_PARTITIONS:
            raise ConfigurationError(
                f"application {self.app!r} has {self.partitions} partitions; "
                f"use 1 to {MAX_PARTITIONS}"
            )
        names = [s.name for s in self.stores]
        if len(set(names)) != len(names):
            raise ConfigurationError(f"application {self.app!r} names a store twice: {names}")

    def store(self, name: str) -> StoreSpec | None:
        """The store of that name, or None."""
        return next((s for s in self.stores if s.name == name), None)

    def required(self, name: str) -> StoreSpec:
        """The store of that name. Raises NotFound, listing the stores that there are."""
        found = self.store(name)
        if found is None:
            known = [s.name for s in self.stores]
            raise NotFound(
                f"application {self.app!r} has no store {name!r}; its stores: {known}",
                app=self.app,
                store=name,
                known=known,
            )
        return found

    def to_json(self) -> dict[str, Any]:
        """As plain data, for the topology topic.

        Which outputs are dated stands apart from them: hosts and drivers of before pass over it.
        """
        outputs = [{"topic": o.topic, "store": o.store} for o in self.outputs]
        dated = [o.topic for o in self.outputs if o.dated]
        return {**asdict(self), "outputs": outputs, **({"dated": dated} if dated else {})}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Topology:
        """Rebuild from `to_json`.

        Raises:
            ConfigurationError: an unknown kind, or another form than this version's.
        """
        try:
            return cls(
                app=data["app"],
                partitions=data["partitions"],
                stores=tuple(StoreSpec(**s) for s in data["stores"]),
                outputs=tuple(
                    OutputSpec(**o, dated=o["topic"] in data.get("dated", ()))
                    for o in data["outputs"]
                ),
                sources=tuple(data["sources"]),
                extra=dict(data.get("extra", {})),
            )
        except (LookupError, TypeError, ValueError, AttributeError) as error:
            message = f"this is no topology as this version of Holdfast writes them: {error!r}"
            raise ConfigurationError(message) from error
