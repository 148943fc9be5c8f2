"""What is kept of streams, by Kafka Streams' nouns: rows by key, windows, stores, tables."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from state_lib.aggregates import Aggregate
from state_lib.declaration import (
    ORDER_FIELDS,
    WINDOW_FIELDS,
    Aggregation,
    Expression,
    Field,
    Kept,
)
from state_lib.durations import Duration, to_ms
from state_lib.errors import ConfigurationError
from state_lib.names import check_name
from state_lib.processors import ProcessedStream, Processing
from state_lib.specs import DAY_MS, BackendName, StoreSpec
from state_lib.verbs import Verbs

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pyspark.sql import Column
    from pyspark.sql.types import DataType

    from state_lib.processing import OnError
    from state_lib.spark.grouping import Key
    from state_lib.spark.process.folds import Wanted
    from state_lib.streams import KStream


@dataclass(frozen=True)
class TimeWindows:
    """Tumbling windows. A record is late when window end + grace has passed stream time."""

    size: Duration
    grace: Duration = 0


@dataclass(frozen=True)
class Materialized:
    """How a store is called and kept.

    ``retention``: how long a window can be queried, from its start; default: size + grace, at least
    a day. ``backend``: ``rocksdb`` or ``memory``.
    """

    name: str
    retention: Duration | None = None
    backend: BackendName = "rocksdb"


class KGroupedStream(Processing):
    """Rows by key, and by window after `windowedBy`."""

    _CALLED = "a stream that is grouped"
    _INSTEAD = (
        "Aggregates are given to agg by name: agg('store', total=agg.sum('x')), with "
        "'from state_lib import agg'"
    )

    def __init__(self, stream: KStream, key: Key, windows: TimeWindows | None = None) -> None:
        self._stream, self._grouped, self._windows = stream, key, windows
        self._key, self._serde, self._name = key.expression, key.serde, key.name

    def windowedBy(self, windows: TimeWindows) -> KGroupedStream:  # noqa: N802 - Kafka Streams'
        """Group by window as well."""
        return KGroupedStream(self._stream, self._grouped, windows)

    def count(self, materialized: Materialized | str) -> KTable:
        """Count rows into a store of int64, as Kafka Streams' ``count()``: same bytes."""
        return self._into(
            materialized, {"count": Field("count", "int64", of_rows=True)}, {}, "int64"
        )

    def agg(self, materialized: Materialized | str, **fields: Aggregate) -> KTable:
        """Keep several fields per key, as a packed struct (see `state_lib.agg`)."""
        store = _materialized(materialized).name
        if not fields or any(name.startswith("_") for name in fields):
            raise ConfigurationError(
                f"store {store!r} needs at least one field, and names without a leading '_': "
                f"{sorted(fields)}"
            )
        inputs, types = self._inputs(store, fields)
        made = {name: self._field(store, name, fields[name], inputs, types) for name in fields}
        layout: list[Any] = [[name, f.type] for name, f in made.items()]
        if any(f.op == "last" for f in made.values()):
            layout = [*map(list, ORDER_FIELDS), *layout]
        return self._into(materialized, made, inputs, {"struct": layout})

    def reduce(
        self,
        reducer: Callable[[Any, Any], Any],
        materialized: Materialized | str,
        *,
        onError: OnError = "dead-letter",  # noqa: N803 - as transformWithState
    ) -> KTable:
        """Keep one row of each key: ``reducer(old, new)`` makes it of the one that is kept.

        The first row of a key is kept as it is. Rows are PySpark's `Row`s with the columns of the
        stream, and come by time, topic, partition, offset. What is returned is a `Row`, a tuple or
        a dict of the same columns; None removes the key, as in Kafka Streams.

        Args:
            reducer: of two rows. It must be picklable, and depend on nothing else.
            materialized: the store.
            onError: what becomes of a row on which it raises, or gives what is no such row:
                ``dead-letter`` (what is kept stays as it was) or ``stop``.

        Raises:
            ConfigurationError: a column that cannot be kept; a function that takes other arguments
                or cannot be pickled.
        """
        from state_lib.spark.process.folds import Wanted  # noqa: PLC0415 - needs PySpark

        wanted = Wanted(reducer, onError, self._name, self._grouped.own)
        return self._folded("reduce", materialized, wanted)

    def aggregate(
        self,
        initializer: Callable[[], Any],
        aggregator: Callable[[Any, Any, Any], Any],
        materialized: Materialized | str,
        schema: DataType | str,
        *,
        onError: OnError = "dead-letter",  # noqa: N803 - as transformWithState
    ) -> KTable:
        """Keep what ``aggregator(key, row, old)`` makes of each row and of what is kept.

        Before the first row of a key that is what ``initializer()`` gives. Otherwise as `reduce`.

        Args:
            initializer: gives the first value, the same each time.
            aggregator: of the key, a `Row` and a value. It must be picklable, and depend on nothing
                else.
            materialized: the store.
            schema: of the value: columns, as DDL or a StructType (values are `Row`s then); or one
                type, such as ``BIGINT`` (it is kept as a column ``value``).
            onError: as of `reduce`.

        Raises:
            ConfigurationError: as `reduce`; or what the initializer gives is of another type.
        """
        from state_lib.spark.process.folds import Wanted  # noqa: PLC0415 - needs PySpark

        wanted = Wanted(aggregator, onError, self._name, begin=initializer, schema=schema)
        return self._folded("aggregate", materialized, wanted)

    # ------------------------------------------------------------------ inside

    def _folded(self, verb: str, materialized: Materialized | str, wanted: Wanted) -> KTable:
        from state_lib.spark.process.folds import fold_of  # noqa: PLC0415 - needs PySpark

        kept = _materialized(materialized)
        at = f"{self._stream._at(verb)} into {kept.name!r}"  # noqa: SLF001 - ours

        def store(serde: object, columns: list[str], of_key: list[str]) -> StoreSpec:
            self._check_names(kept, columns, of_key)
            return self._spec(kept, serde)

        made = fold_of(self._stream, self._key, self._serde, wanted, store, at)
        app = self._stream._app  # noqa: SLF001 - ours
        app.processes.append(made)
        return KTable(ProcessedStream(app, len(app.processes) - 1).to)

    def _inputs(
        self, store: str, fields: Mapping[str, Aggregate]
    ) -> tuple[dict[str, Expression], dict[str, DataType]]:
        """What fields take of a row, and its types. Spark is asked once for all of them."""
        from pyspark.sql import functions as F  # noqa: N812, PLC0415 - needs PySpark

        from state_lib.spark.analysis import each_resolved  # noqa: PLC0415 - as above

        rows = self._stream._rows  # noqa: SLF001 - ours
        asked: dict[str, Column | str] = {}
        for name, wanted in fields.items():
            if not isinstance(wanted, Aggregate):
                raise ConfigurationError(
                    f"{self._at(store, name)} is to be {wanted!r}: write one of state_lib.agg's, "
                    "like agg.sum('x')"
                )
            if wanted.value is not None:
                asked[name] = wanted.value
        found = each_resolved(rows, [(self._at(store, n), value) for n, value in asked.items()])
        inputs: dict[str, Expression] = {}
        types: dict[str, DataType] = {}
        conditions: dict[str, Column] = {}
        for name, one in zip(asked, found, strict=True):
            inputs[name], types[name] = one.expression, one.data_type
            if not fields[name].condition:
                continue
            if one.type != "boolean":
                raise ConfigurationError(
                    f"{self._at(store, name)}: {one.expression.text} is {one.type}, no condition"
                )
            # Null for false, so that a count counts the rows for which it is true.
            conditions[name] = F.nullif(one.column, F.lit(False))  # noqa: FBT003
        found = each_resolved(rows, [(self._at(store, n), c) for n, c in conditions.items()])
        counted = {n: one.expression for n, one in zip(conditions, found, strict=True)}
        return inputs | counted, types

    def _field(
        self,
        store: str,
        name: str,
        wanted: Aggregate,
        inputs: Mapping[str, Expression],
        types: Mapping[str, DataType],
    ) -> Field:
        from state_lib.spark.kinds import kept_as, sorts, sum_of  # noqa: PLC0415 - needs PySpark

        if wanted.op == "count":
            return Field("count", "int64", of_rows=wanted.value is None)
        at, found = self._at(store, name), inputs[name]
        try:
            kind = kept_as(types[name])
        except TypeError as error:
            raise ConfigurationError(
                f"{at}: {found.text} is of type {found.type}, and {error} cannot be kept. Write "
                "another type, by cast(...) or to_json(...)"
            ) from error
        kept = sum_of(kind) if wanted.op == "sum" else kind
        if kept is None:
            raise ConfigurationError(
                f"{at}: the sum of {found.text}, of type {found.type}, cannot be kept. Write a "
                "number, by cast(...): bigint, double, or a decimal of up to 28 digits"
            )
        if wanted.op in ("min", "max") and not sorts(kept):
            raise ConfigurationError(
                f"{at}: {wanted.op} of {found.text}, of type {found.type}, cannot be kept. Write "
                f"{wanted.op} of one value, or of a struct of values that are no fractions (cast "
                "them to a decimal), no arrays and no maps"
            )
        return Field(wanted.op, kept)

    def _at(self, store: str, name: str) -> str:
        return self._stream._at(f"agg of {store}.{name}")  # noqa: SLF001 - ours

    def _into(
        self,
        materialized: Materialized | str,
        fields: Mapping[str, Field],
        inputs: Mapping[str, Expression],
        serde: object,
    ) -> KTable:
        kept = _materialized(materialized)
        verb = Aggregation(
            self._stream._source,  # noqa: SLF001 - ours
            self._stream._steps,  # noqa: SLF001 - ours
            self._key,
            inputs,
            Kept(self._spec(kept, serde), self._serde, fields, self._name),
        )
        self._check_names(kept, [*fields], verb.kept.key_names)
        app = self._stream._app  # noqa: SLF001 - ours
        app.aggregations.append(verb)
        index = len(app.aggregations) - 1

        def write(topic: str) -> None:
            old = app.aggregations[index]
            outputs = (*old.kept.outputs, topic)
            app.aggregations[index] = replace(old, kept=replace(old.kept, outputs=outputs))

        return KTable(write)

    def _check_names(self, kept: Materialized, fields: list[str], of_key: list[str]) -> None:
        """Refuse what an output would have twice: names of its key, its window and its fields."""
        names, windows = {*of_key}, set[str]() if self._windows is None else {*WINDOW_FIELDS}
        if hidden := sorted(names & windows):
            raise ConfigurationError(
                f"store {kept.name!r} has a key with {hidden}, and its windows are called so: in "
                "outputs the window would hide the key. Group by a column of another name, by "
                ".alias('name')",
                store=kept.name,
                fields=hidden,
            )
        if clash := sorted((names | windows).intersection(fields)):
            raise ConfigurationError(
                f"store {kept.name!r} has fields {clash}, and its key or window is called so as "
                "well: in outputs one would hide the other. Rename the field",
                store=kept.name,
                fields=clash,
            )

    def _spec(self, kept: Materialized, serde: object) -> StoreSpec:
        size = grace = retention = 0
        if self._windows is not None:
            size, grace = to_ms(self._windows.size), to_ms(self._windows.grace)
            given = kept.retention
            retention = max(size + grace, DAY_MS) if given is None else to_ms(given)
        elif kept.retention is not None:
            raise ConfigurationError(
                f"store {kept.name!r} keeps every key for ever: retention is for windows. Remove "
                "it, or write windowedBy(...)"
            )
        return StoreSpec(
            name=kept.name,
            kind="timestamped-key-value" if self._windows is None else "window",
            backend=kept.backend,
            key_serde=self._serde,
            value_serde=serde,
            window_size_ms=size,
            grace_ms=grace,
            retention_ms=retention,
        )


class KTable(Verbs):
    """A store that a verb keeps, and its changes.

    Args:
        write: lets them be written to a topic.
    """

    _CALLED = "a table"
    _INSTEAD = "Write its changes to a topic: toStream().to('topic')"

    def __init__(self, write: Callable[[str], None]) -> None:
        self._write = write

    def toStream(self) -> Changes:  # noqa: N802 - Kafka Streams'
        """Every changed row."""
        return Changes(self._write)


class Changes(Verbs):
    """Changed rows of a table: they can be written to a topic, and no more verbs follow.

    They are made where the store is changed, in the transaction of its commit, and Spark, which
    computes expressions, has done its part of the batch by then.
    """

    _CALLED = "what a table's toStream() gives"
    _INSTEAD = (
        "Shape rows before they are grouped, or read the topic that they are written to in another "
        "application"
    )

    def __init__(self, write: Callable[[str], None]) -> None:
        self._write = write

    def to(self, topic: str) -> None:
        """Write every changed row to a topic, in the transaction that changes the store.

        Keys are the store's (windowed: key and start, as Kafka Streams' windowed topic serde);
        values are JSON objects with the key (or its columns), window and fields, and null where a
        key was removed.
        """
        self._write(check_name("topic", topic))


def _materialized(given: Materialized | str) -> Materialized:
    return Materialized(given) if isinstance(given, str) else given
