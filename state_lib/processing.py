"""What a job declares of its own code per key, as plain data: docs/adr/0024.

A stateful processor of Spark's, or functions that fold rows. Nothing here touches Spark:
`state_lib.spark.process` learns it of a processor, `state_lib.executor.process` runs it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from state_lib.specs import OutputSpec, StoreSpec

if TYPE_CHECKING:
    from state_lib.declaration import Expression, Source, Step
    from state_lib.serdes.kinds import Kind

StateKind = Literal["value", "list", "map"]
TimeMode = Literal["none", "eventtime", "processingtime"]
OnError = Literal["dead-letter", "stop"]
TIMERS = "timers"
"""The state that every processor has; no other may be called so."""


@dataclass(frozen=True)
class State:
    """A state as ``init`` asks for it.

    Attributes:
        name: of the state.
        kind: what it is.
        schema: of its values, Spark's JSON.
        key_schema: of a map's keys.
        ttl_ms: how long an entry lives after its last change; None: without end.
    """

    name: str
    kind: StateKind
    schema: str
    key_schema: str = ""
    ttl_ms: int | None = None


@dataclass(frozen=True)
class Fold:
    """What `reduce` and `aggregate` keep: one value by key, and by window.

    Attributes:
        store: that keeps it. Its name is the processor's.
        key_name: of the key in outputs, as one; empty: it has columns, or is among the value's.
        single: the value is no row, but of one type.
        key_columns: of a key of several those that outputs begin with: not among the value's.
    """

    store: StoreSpec
    key_name: str
    single: bool = False
    key_columns: tuple[str, ...] = ()

    @property
    def meaning(self) -> list[Any]:
        """All that decides what is kept of a row, as plain data."""
        store = self.store
        kept = [store.kind, store.window_size_ms, store.grace_ms, store.value_serde]
        return [*kept, self.key_name, self.key_columns, self.single]


@dataclass(frozen=True)
class Processor:
    """All of a processor that executors need.

    Attributes:
        name: begins the names of its stores.
        code: the processor, pickled.
        states: that it asks for.
        rows, results: schemas of the rows that it takes and makes, Spark's JSON.
        key_serde: of the grouping key.
        time_mode: which timers it has.
        pandas: whether it takes and makes pandas' DataFrames.
        on_error: what becomes of rows on which it raises.
        event_time: the column of results that is their time; the greatest input's without one.
        grace_ms: how far its event time lies behind stream time: so much later rows may be.
        explodes: how many places within its record a row has.
        outputs: topics.
        initial: schema of the rows that it begins with; empty: it begins with nothing.
        fold: of a verb that folds rows by functions, which are its ``code`` then.
    """

    name: str
    code: bytes
    states: tuple[State, ...]
    rows: str
    results: str
    key_serde: Kind
    time_mode: TimeMode
    pandas: bool = False
    on_error: OnError = "dead-letter"
    event_time: str = ""
    grace_ms: int = 0
    explodes: int = 0
    outputs: tuple[str, ...] = ()
    initial: str = ""
    fold: Fold | None = None

    def store(self, state: str) -> str:
        """The name of a state's store."""
        return f"{self.name}-{state}"


@dataclass(frozen=True)
class Process:
    """A stateful verb that runs a processor.

    Attributes:
        source, steps, key: the rows that it takes, and what they are grouped by.
        processor: what takes them.
        stores: that of timers first, then one for each state; of a fold the one that it keeps.
        code: digest of what the processor does.
        initial: PySpark's rows by key that it begins with; stays in its process.
    """

    source: Source
    steps: tuple[Step, ...]
    key: Expression
    processor: Processor
    stores: tuple[StoreSpec, ...]
    code: str
    initial: Any = field(default=None, compare=False, repr=False)

    @property
    def name(self) -> str:
        """Of the processor."""
        return self.processor.name

    @property
    def topics(self) -> tuple[str, ...]:
        """Outputs by name."""
        return self.processor.outputs

    @property
    def outputs(self) -> list[OutputSpec]:
        """Output topics, with the store by which they are listed."""
        store, dated = self.stores[0].name, bool(self.processor.event_time)
        return [OutputSpec(topic, store, dated) for topic in self.processor.outputs]

    @property
    def routing(self) -> list[Any]:
        """All that decides which rows it takes, and which task has them, as plain data."""
        one = self.processor
        return [
            one.name,
            self.source.meaning,
            [step.meaning for step in self.steps],
            [self.key.meaning, one.key_serde],
        ]

    @property
    def meaning(self) -> list[Any]:
        """All that decides what it does with a record, as plain data."""
        one = self.processor
        return [
            *self.routing[1:],
            [[s.name, s.kind, s.schema, s.key_schema, s.ttl_ms] for s in one.states],
            [one.name, one.rows, one.results, one.time_mode, one.pandas, one.on_error],
            [one.event_time, one.outputs, one.grace_ms, self.code],
            *([] if one.fold is None else [one.fold.meaning]),
        ]
