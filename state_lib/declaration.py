"""What a job declares, as plain data: sources, row-wise steps, what is kept, outputs.

`state_lib.application` writes it down verb by verb, `state_lib.spark` turns it into DataFrames, and
hosts see only its `Topology`. Nothing here touches Spark or Kafka.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import orjson

from state_lib.errors import ConfigurationError
from state_lib.names import check_name
from state_lib.processing import Process
from state_lib.specs import OutputSpec, StoreSpec, Topology

if TYPE_CHECKING:
    from state_lib.serdes.kinds import Kind

Format = Literal["json", "avro", "text", "raw"]
Op = Literal["count", "sum", "min", "max", "last"]
Generator = Literal["", "explode", "explode_outer"]
CallKind = Literal["row", "pandas", "pandas-iter", "arrow", "arrow-iter"]
"""What a Python function is given: one row; else several, and those maybe by an iterator."""
_MEANING = 4
"""Counts up when Holdfast itself does something else with a record."""
ORDER_FIELDS = (("_last_ts", "int64"), ("_last_src", "int64"), ("_last_offset", "int64"))
"""Hidden fields of a store with `last`: which record the kept values are from."""
WINDOW_FIELDS = ("window_start", "window_end")
"""What outputs of a window store say beside key and fields."""


@dataclass(frozen=True)
class Source:
    """A topic and how its values are read.

    ``schema`` (Spark DDL) is for ``json``, where columns that are ``NOT NULL`` are required, and
    ``avro``. ``timestamp``: the column that is event time; empty: it is the record's own timestamp.
    ``reader``: of ``avro`` the schema to which records are resolved, as JSON.
    """

    topic: str
    format: Format = "raw"
    schema: str = ""
    timestamp: str = ""
    reader: str = field(default="", repr=False)

    def __str__(self) -> str:
        said = f"{self.format} ({self.schema})" if self.schema else self.format
        if self.reader:  # two may have the same columns
            said += f" by schema {hashlib.sha256(self.reader.encode()).hexdigest()[:8]}"
        return f"{said}, timestamp {self.timestamp!r}" if self.timestamp else said

    @property
    def meaning(self) -> list[Any]:
        """All that decides what it makes of a record, as plain data."""
        said: list[Any] = [self.topic, self.format, self.schema]
        if self.timestamp:
            said.append(["timestamp", self.timestamp])
        if self.reader:
            said.append(["reader", self.reader])
        return said


@dataclass(frozen=True)
class Call:
    """A call of a Python function within an expression, which is evaluated before that.

    Attributes:
        name: as Spark calls the function.
        column: what holds the result while the step is computed.
        level: 0, or one more than that of the calls that it is called on.
        code: digest of what the function does.
        gives: the type of its result.
        args: what it is called on.
        keywords: of each the name by which it is given; empty where it has none.
        kind: what it is given at a time.
        takes: the types of what it is called on, PySpark's.
        pickle: digest of the function's bytes, which another process may have in another way.
        at: how errors call the step.
        function: what calls it in executors, `state_lib.executor.caught.Caught`, or of
            several rows `state_lib.executor.caught_rows.CaughtRows`. It stays in its process.
    """

    name: str
    column: str
    level: int
    code: str
    gives: str
    args: tuple[Expression, ...]
    keywords: tuple[str, ...]
    kind: CallKind = "row"
    takes: tuple[Any, ...] = field(default=(), compare=False, repr=False)
    pickle: str = field(default="", repr=False)
    at: str = field(default="", compare=False, repr=False)
    function: Any = field(default=None, compare=False, repr=False)

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "function": None}

    @property
    def meaning(self) -> list[Any]:
        """What it says, as plain data."""
        args = [[k, arg.meaning] for k, arg in zip(self.keywords, self.args, strict=True)]
        of_rows = [] if self.kind == "row" else [self.kind]
        return [self.name, self.column, self.code, self.gives, args, *of_rows]


@dataclass(frozen=True)
class Expression:
    """A Spark SQL expression over a stream's columns.

    Attributes:
        text: as Spark has resolved it: for people, and not all that there is to it.
        tree: a digest of the whole of it as it was written; empty if it is not resolved.
        type: Spark's, as DDL; empty if it is not resolved.
        plain: it is nothing but a column or a literal, and cannot fail.
        calls: of Python functions, those within others first; the column has their results.
        column: PySpark's own. It stays in its process.
    """

    text: str
    tree: str = ""
    type: str = ""
    plain: bool = False
    calls: tuple[Call, ...] = ()
    column: Any = field(default=None, compare=False, repr=False)

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "column": None}

    @property
    def meaning(self) -> list[Any]:
        """What it says, as plain data."""
        calls = [call.meaning for call in self.calls]
        return [self.text, self.tree, self.type, *([calls] if calls else [])]


@dataclass(frozen=True)
class Item:
    """One column that a select makes; ``rows``: it makes a row of each element of an array."""

    name: str
    expression: Expression
    rows: Generator = ""

    @property
    def plain(self) -> bool:
        """Whether it is nothing but another column or a literal, and cannot fail."""
        return self.expression.plain and not self.rows


@dataclass(frozen=True)
class Select:
    """The columns that rows have from there on."""

    items: tuple[Item, ...]

    @property
    def expressions(self) -> list[Expression]:
        """All that it computes."""
        return [item.expression for item in self.items]

    @property
    def meaning(self) -> list[Any]:
        """All that decides what it does with a row, as plain data."""
        return ["select", *([i.name, i.rows, i.expression.meaning] for i in self.items)]


@dataclass(frozen=True)
class Where:
    """Keeps rows for which a condition is true."""

    condition: Expression

    @property
    def expressions(self) -> list[Expression]:
        """All that it computes."""
        return [self.condition]

    @property
    def meaning(self) -> list[Any]:
        """All that decides what it does with a row, as plain data."""
        return ["where", self.condition.meaning]


Step = Select | Where


@dataclass(frozen=True)
class Field:
    """One field of what is kept: how values are joined, and the type they are stored as.

    ``of_rows``: it counts rows, and takes no value of them.
    """

    op: Op
    type: Kind
    of_rows: bool = False


@dataclass(frozen=True)
class Kept:
    """What is kept of a stream, and under which names: all of a verb that executors need.

    ``key_name``: how the key is called in outputs; empty: it has columns, with names of their own.
    """

    store: StoreSpec
    key_serde: Kind
    fields: Mapping[str, Field]
    key_name: str = "key"
    outputs: tuple[str, ...] = ()

    @property
    def key_names(self) -> list[str]:
        """Of the columns that outputs begin with."""
        from state_lib.serdes.kinds import columns_of  # noqa: PLC0415 - needs Arrow

        columns = [] if self.key_name else columns_of(self.key_serde)
        return [name for name, _ in columns] or [self.key_name]

    @property
    def has_last(self) -> bool:
        """Whether the order of the latest record is kept."""
        return any(f.op == "last" for f in self.fields.values())


@dataclass(frozen=True)
class Aggregation:
    """A stateful verb: the rows that it takes, their key, the fields' values, what is kept."""

    source: Source
    steps: tuple[Step, ...]
    key: Expression
    inputs: Mapping[str, Expression]
    kept: Kept

    @property
    def store(self) -> StoreSpec:
        """The store that keeps it."""
        return self.kept.store

    @property
    def fields(self) -> Mapping[str, Field]:
        """Those that are kept."""
        return self.kept.fields

    @property
    def meaning(self) -> list[Any]:
        """All that decides what it does with a record, as plain data."""
        kept, store = self.kept, self.kept.store
        return [
            self.source.meaning,
            [step.meaning for step in self.steps],
            [self.key.meaning, kept.key_name, kept.key_serde],
            [store.name, store.kind, store.window_size_ms, store.grace_ms, store.value_serde],
            [[name, f.op, f.type, f.of_rows] for name, f in kept.fields.items()],
            [[name, value.meaning] for name, value in self.inputs.items()],
            kept.outputs,
        ]


class Declaration:
    """An id, a partition count, and verbs.

    Args:
        app_id: names topics, directories and metrics.
        partitions: of every changelog; the number of tasks. It cannot be changed later.
        aggregations: the verbs that keep columns.
        processes: those that run Python per key: processors, `reduce` and `aggregate`.
    """

    def __init__(
        self,
        app_id: str,
        partitions: int = 4,
        aggregations: tuple[Aggregation, ...] = (),
        processes: tuple[Process, ...] = (),
    ) -> None:
        self.id = check_name("application", app_id)
        self.partitions = partitions
        self.aggregations: list[Aggregation] = [*aggregations]
        self.processes: list[Process] = [*processes]

    @property
    def verbs(self) -> list[Aggregation | Process]:
        """All that is stateful. Rows bear a verb's place among them."""
        return [*self.aggregations, *self.processes]

    @property
    def readers(self) -> dict[str, str]:
        """Schemas that topics in Avro are read by."""
        return {v.source.topic: v.source.reader for v in self.verbs if v.source.reader}

    @property
    def calls(self) -> list[Call]:
        """All of Python functions within expressions."""
        found: list[Expression] = []
        for verb in self.verbs:
            found += [one for step in verb.steps for one in step.expressions]
            found += [verb.key, *(verb.inputs.values() if isinstance(verb, Aggregation) else ())]
        return [call for one in found for call in one.calls]

    @property
    def has_timers(self) -> bool:
        """Whether time alone may change what is kept: there is a processor that is no fold."""
        return any(verb.processor.fold is None for verb in self.processes)

    @property
    def depends_on_cut(self) -> bool:
        """Whether what is kept may depend on how the stream was cut: rows meet Python in order."""
        return bool(self.processes)

    @property
    def topology(self) -> Topology:
        """What hosts need to know. Raises ConfigurationError on duplicate names."""
        if not self.verbs:
            raise ConfigurationError(
                f"application {self.id!r} declares no store: end a stream with groupBy(...) and "
                "count(...), agg(...), reduce(...), aggregate(...) or transformWithState(...)"
            )
        kept = [a.store for a in self.aggregations]
        outputs = [OutputSpec(t, a.store.name) for a in self.aggregations for t in a.kept.outputs]
        return Topology(
            app=self.id,
            partitions=self.partitions,
            stores=(*kept, *(s for p in self.processes for s in p.stores)),
            outputs=(*outputs, *(o for p in self.processes for o in p.outputs)),
            sources=tuple(sorted({verb.source.topic for verb in self.verbs})),
        )

    @property
    def fingerprint(self) -> str:
        """Twelve digits that change with whatever decides what a record does, and to which task.

        Raises ConfigurationError as `topology`.
        """
        return self._digest([verb.meaning for verb in self.verbs])

    @property
    def routing(self) -> str:
        """As many that do not change with what a processor does: that is its own task's alone.

        Empty where there is no processor: `fingerprint` says it.
        """
        if not self.processes:
            return ""
        kept = [verb.meaning for verb in self.aggregations]
        return self._digest([kept, [verb.routing for verb in self.processes]])

    def _digest(self, verbs: list[Any]) -> str:
        meaning = [_MEANING, self.topology.partitions, self.topology.sources, verbs]
        return hashlib.sha256(orjson.dumps(meaning)).hexdigest()[:12]
