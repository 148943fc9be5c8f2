"""What a job declares: sources, row-wise steps, stateful verbs, outputs.

A declaration is data. Nothing here touches Spark or Kafka; `state_lib.spark` turns it into
DataFrames, and hosts see only its `Topology`.

>>> from state_lib import Application, Text
>>> app = Application("word_count", partitions=4)
>>> lines = app.stream("lines", Text())
>>> words = lines.explode("word", r"split(lower(value), '[^a-z]+')").where("word <> ''")
>>> words.group_by("word").count("counts").to("word-counts")
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

import orjson

from state_lib.aggregates import Aggregate
from state_lib.durations import Duration, to_ms
from state_lib.errors import ConfigurationError
from state_lib.names import check_column, check_name
from state_lib.refused import tell_refusals
from state_lib.specs import DAY_MS, BackendName, OutputSpec, StoreSpec, Topology

KeySerde = Literal["utf8", "int64", "bytes"]
_MEANING = 2
"""Counts up when Holdfast itself does something else with a record."""
ORDER_FIELDS = (("_last_ts", "int64"), ("_last_src", "int64"), ("_last_offset", "int64"))
"""Hidden fields of a store with `last`: which record the kept values are from."""
WINDOW_FIELDS = ("window_start", "window_end")
"""What outputs of a window store say beside key and fields."""


@dataclass(frozen=True)
class Raw:
    """Values as they are: columns ``key`` and ``value`` are binary."""


@dataclass(frozen=True)
class Text:
    """Values are UTF-8 text in column ``value``; other bytes, and nulls, are undecodable."""


@dataclass(frozen=True)
class Json:
    """Values are JSON objects with the given columns (Spark DDL).

    ``NOT NULL`` columns are required: a record without one is a dead letter, as is one that is
    not JSON or has another type in a column. (A number in a ``STRING`` column is its text, as
    Spark reads it.)
    """

    ddl: str


ValueFormat = Raw | Text | Json


@dataclass(frozen=True)
class Source:
    """A topic and how its values are read. Event time is the record's timestamp."""

    topic: str
    format: ValueFormat


@dataclass(frozen=True)
class Step:
    """One row-wise step: ``op`` is with_column, where or explode."""

    op: Literal["with_column", "where", "explode"]
    expr: str
    name: str = ""


@dataclass(frozen=True)
class TimeWindows:
    """Tumbling windows. A record is late when window end + grace has passed the clock."""

    size: Duration
    grace: Duration = 0
    retention: Duration | None = None
    """How long a window can be queried, from its start; default: size + grace, at least a day."""


@dataclass(frozen=True)
class Aggregation:
    """A stateful verb: group, window, fields, the store that keeps them, topics of changes."""

    source: Source
    steps: tuple[Step, ...]
    key: str
    key_serde: KeySerde
    windows: TimeWindows | None
    fields: Mapping[str, Aggregate]
    store: StoreSpec
    outputs: tuple[str, ...] = ()

    @property
    def key_name(self) -> str:
        """How outputs and tables call the key: the grouping column, or ``key``."""
        return self.key if self.key.isidentifier() else "key"

    @property
    def meaning(self) -> list[Any]:
        """All that decides what it does with a record, as plain data."""
        kept, source = self.store, self.source
        return [
            [source.topic, type(source.format).__name__, asdict(source.format)],
            [asdict(step) for step in self.steps],
            [self.key, self.key_serde],
            [kept.name, kept.kind, kept.window_size_ms, kept.grace_ms, kept.value_serde],
            [[name, asdict(field)] for name, field in self.fields.items()],
            self.outputs,
        ]

    @property
    def has_last(self) -> bool:
        """Whether the order of the latest record is kept."""
        return any(f.op == "last" for f in self.fields.values())


class Application:
    """An id, a partition count, and what `stream` and the verbs after it declare.

    A job that may not be declared so ends with exit code 4 (`state_lib.exits`).

    Args:
        app_id: names topics, directories and metrics.
        partitions: of every changelog; the number of tasks. It cannot be changed later.
    """

    def __init__(self, app_id: str, partitions: int = 4) -> None:
        tell_refusals()
        self.id = check_name("application", app_id)
        self.partitions = partitions
        self.aggregations: list[Aggregation] = []
        self._formats: dict[str, ValueFormat] = {}

    def stream(self, topic: str, value: ValueFormat | None = None) -> Stream:
        """Read a topic.

        Raises:
            ConfigurationError: it is read in another format already. A record that one of them can
                read and the other cannot would be a dead letter and counted at once.
        """
        source = Source(check_name("topic", topic), value or Raw())
        known = self._formats.setdefault(topic, source.format)
        if known != source.format:
            raise ConfigurationError(
                f"application {self.id!r} reads topic {topic!r} as {known} already, and cannot "
                f"read it as {source.format} as well: read it as Raw() and decode it in "
                "expressions, or use another application",
                topic=topic,
            )
        return Stream(self, source)

    @property
    def topology(self) -> Topology:
        """What hosts need to know. Raises ConfigurationError on duplicate names."""
        if not self.aggregations:
            raise ConfigurationError(
                f"application {self.id!r} declares no store: end a stream with group_by(...) and "
                "count(...) or aggregate(...)"
            )
        return Topology(
            app=self.id,
            partitions=self.partitions,
            stores=tuple(a.store for a in self.aggregations),
            outputs=tuple(
                OutputSpec(topic, a.store.name) for a in self.aggregations for topic in a.outputs
            ),
            sources=tuple(sorted({a.source.topic for a in self.aggregations})),
        )

    @property
    def fingerprint(self) -> str:
        """Twelve digits that change with whatever decides what a record does, and to which task.

        Raises ConfigurationError as `topology`.
        """
        verbs = [a.meaning for a in self.aggregations]
        meaning = [_MEANING, self.topology.partitions, self.topology.sources, verbs]
        return hashlib.sha256(orjson.dumps(meaning)).hexdigest()[:12]

    def run(self) -> None:
        """Run the stream until it is asked to stop: the last line of a job."""
        from state_lib.spark import run  # noqa: PLC0415 - declarations must not import pyspark

        run(self)


@dataclass(frozen=True)
class Stream:
    """Records of a topic after row-wise steps. Every step keeps the record's place in its topic."""

    app: Application
    source: Source
    steps: tuple[Step, ...] = ()

    def with_column(self, name: str, expr: str) -> Stream:
        """Add or replace a column."""
        return self._then(Step("with_column", expr, check_column(name)))

    def where(self, condition: str) -> Stream:
        """Keep rows for which the condition is true."""
        return self._then(Step("where", condition))

    def explode(self, name: str, expr: str) -> Stream:
        """One row per non-null element of an array."""
        return self._then(Step("explode", expr, check_column(name)))

    def group_by(self, key: str, serde: KeySerde = "utf8") -> Grouped:
        """Group by an expression; its bytes in ``serde`` decide the task.

        Null keys are skipped and counted.
        """
        return Grouped(self, key, serde)

    def _then(self, step: Step) -> Stream:
        return replace(self, steps=(*self.steps, step))


@dataclass(frozen=True)
class Grouped:
    """Rows by key, and by window after `windowed_by`."""

    stream: Stream
    key: str
    serde: KeySerde
    windows: TimeWindows | None = None

    def windowed_by(self, windows: TimeWindows) -> Grouped:
        """Group by window as well."""
        return replace(self, windows=windows)

    def count(self, store: str, backend: BackendName = "rocksdb") -> Table:
        """Count rows into a store of int64, as Kafka Streams' ``count()``: same bytes."""
        fields = {"count": Aggregate("count", None, "int64")}
        return self._into(store, fields, "int64", backend)

    def aggregate(self, store: str, backend: BackendName = "rocksdb", **fields: Aggregate) -> Table:
        """Keep several fields per key, as a packed struct (see `state_lib.agg`)."""
        if not fields or any(name.startswith("_") for name in fields):
            raise ConfigurationError(
                f"store {store!r} needs at least one field, and names without a leading '_': "
                f"{sorted(fields)}"
            )
        layout = [[name, f.type] for name, f in fields.items()]
        if any(f.op == "last" for f in fields.values()):
            layout = [*map(list, ORDER_FIELDS), *layout]
        return self._into(store, fields, {"struct": layout}, backend)

    def _into(
        self, store: str, fields: Mapping[str, Aggregate], serde: object, backend: BackendName
    ) -> Table:
        size = grace = retention = 0
        if self.windows is not None:
            size, grace = to_ms(self.windows.size), to_ms(self.windows.grace)
            kept = self.windows.retention
            retention = max(size + grace, DAY_MS) if kept is None else to_ms(kept)
        spec = StoreSpec(
            name=store,
            kind="timestamped-key-value" if self.windows is None else "window",
            backend=backend,
            key_serde=self.serde,
            value_serde=serde,
            window_size_ms=size,
            grace_ms=grace,
            retention_ms=retention,
        )
        app = self.stream.app
        verb = Aggregation(
            self.stream.source,
            self.stream.steps,
            self.key,
            self.serde,
            self.windows,
            dict(fields),
            spec,
        )
        taken = {verb.key_name, *(WINDOW_FIELDS if spec.is_window else ())}
        if clash := sorted(taken & fields.keys()):
            raise ConfigurationError(
                f"store {store!r} has fields {clash}, and its key or window is called so as well: "
                "in outputs one would hide the other. Rename the field, or group by a column of "
                "another name",
                store=store,
                fields=clash,
            )
        app.aggregations.append(verb)
        return Table(app, len(app.aggregations) - 1)


@dataclass(frozen=True)
class Table:
    """A store that a verb keeps; its changes can go to topics."""

    app: Application
    index: int = field(repr=False)

    def to(self, topic: str) -> Table:
        """Write every changed row to a topic, in the transaction that changes the store.

        Keys are the store's (windowed: key and start, as Kafka Streams' windowed topic serde);
        values are JSON objects with key, window and fields.
        """
        check_name("topic", topic)
        old = self.app.aggregations[self.index]
        self.app.aggregations[self.index] = replace(old, outputs=(*old.outputs, topic))
        return self
