"""Learns of a processor, when it is declared, what it keeps."""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING, Any, get_args

from pyspark import cloudpickle
from pyspark.sql.streaming import StatefulProcessor
from pyspark.sql.streaming.stateful_processor import (
    ListState,
    MapState,
    StatefulProcessorHandle,
    ValueState,
)
from pyspark.sql.types import StructType, TimestampType

from state_lib.driver.meaning import meaning_of
from state_lib.errors import ConfigurationError, HoldfastError
from state_lib.executor.process.codec import RowCodec
from state_lib.executor.process.schemas import struct_of
from state_lib.executor.process.values import shown
from state_lib.names import check_name
from state_lib.processing import TIMERS, OnError, Process, Processor, State, TimeMode
from state_lib.spark.entries import explodes
from state_lib.spark.process.initial import schema_of_initial
from state_lib.spark.sources import ddl_of, schema_of, seen
from state_lib.specs import StoreSpec

if TYPE_CHECKING:
    from state_lib.declaration import Expression
    from state_lib.processors import Wanted
    from state_lib.serdes.kinds import Kind
    from state_lib.streams import KStream

_OUTPUT_MODES = ("append", "update")


def process_of(stream: KStream, key: Expression, serde: Kind, wanted: Wanted, at: str) -> Process:
    """The verb that runs a processor. Raises ConfigurationError, naming the step ``at``."""
    check_name("processor", wanted.name)
    time_mode = _modes(wanted, at)
    results = schema_of(ddl_of(wanted.results))
    _check_results(results, wanted.event_time, at)
    code, states = _learned(wanted.processor, time_mode, at)
    processor = Processor(
        name=wanted.name,
        code=code,
        states=states,
        rows=seen(stream._rows).json(),  # noqa: SLF001 - ours
        results=results.json(),
        key_serde=serde,
        time_mode=time_mode,
        pandas=wanted.pandas,
        on_error=known_on_error(wanted.on_error, at),
        event_time=wanted.event_time,
        grace_ms=wanted.grace_ms,
        explodes=explodes(stream._steps),  # noqa: SLF001 - ours
        initial="" if wanted.initial is None else schema_of_initial(wanted.initial, serde, at),
    )
    timers = StoreSpec(
        processor.store(TIMERS),
        key_serde="bytes",
        value_serde="bytes",
        state=f"{TIMERS} by {serde}, {time_mode}",
    )
    return Process(
        source=stream._source,  # noqa: SLF001 - ours
        steps=stream._steps,  # noqa: SLF001 - ours
        key=key,
        processor=processor,
        stores=(timers, *(_store(processor, state, at) for state in states)),
        code=meaning_of(wanted.processor),
        initial=wanted.initial,
    )


def _modes(wanted: Wanted, at: str) -> TimeMode:
    if not isinstance(wanted.processor, StatefulProcessor):
        raise ConfigurationError(
            f"{at} takes a StatefulProcessor of pyspark.sql.streaming, not {wanted.processor!r}"
        )
    if str(wanted.output_mode).lower() not in _OUTPUT_MODES:
        raise ConfigurationError(
            f"{at}: outputMode {wanted.output_mode!r} is none that is kept. Write 'Append' or "
            "'Update': what was said once stands in the output topic, and 'Complete' would write "
            "all of it again with every batch"
        )
    for mode in get_args(TimeMode):
        if str(wanted.time_mode).lower() == mode:
            known: TimeMode = mode
            return known
    raise ConfigurationError(
        f"{at}: timeMode {wanted.time_mode!r} is unknown: write 'EventTime', 'ProcessingTime' or "
        "'None'"
    )


def known_on_error(given: str, at: str) -> OnError:
    """What becomes of rows on which it raises. Raises ConfigurationError for another word."""
    for known in get_args(OnError):
        if given == known:
            chosen: OnError = known
            return chosen
    raise ConfigurationError(f"{at}: onError is {given!r}: write one of {get_args(OnError)}")


def _check_results(results: StructType, event_time: str, at: str) -> None:
    for field in results.fields:
        try:
            shown(field.dataType)
        except TypeError as error:
            raise ConfigurationError(f"{at}: column {field.name!r}: {error}") from error
    if event_time and not any(
        f.name == event_time and isinstance(f.dataType, TimestampType) for f in results.fields
    ):
        raise ConfigurationError(
            f"{at}: eventTimeColumnName is {event_time!r}, and outputStructType has no TIMESTAMP "
            f"of that name: {results.simpleString()}"
        )


def _store(processor: Processor, state: State, at: str) -> StoreSpec:
    schema = struct_of(state.schema)
    said = f"{state.kind} {schema.simpleString()}"
    if state.kind != "value":
        said += f" of {processor.key_serde}"
    try:
        if state.key_schema:
            keys = struct_of(state.key_schema)
            said += f" by {keys.simpleString()}"
            RowCodec(keys)
        serde = RowCodec(schema, ttl=state.ttl_ms is not None).serde
    except (TypeError, ConfigurationError) as error:
        raise ConfigurationError(f"{at}: state {state.name!r}: {error}") from error
    return StoreSpec(
        processor.store(state.name),
        key_serde=processor.key_serde if state.kind == "value" else "bytes",
        value_serde=serde,
        state=said,
    )


# ---------------------------------------------------------------------- what init asks for


def _learned(
    processor: StatefulProcessor, time_mode: TimeMode, at: str
) -> tuple[bytes, tuple[State, ...]]:
    """The processor as bytes, and the states that a copy of it asks for."""
    try:
        code: bytes = cloudpickle.dumps(processor)
        copy: StatefulProcessor = pickle.loads(code)  # noqa: S301 - made above
    except Exception as error:
        raise ConfigurationError(
            f"{at}: the processor cannot be pickled, and executors make theirs of that: {error}. "
            "Open connections and the like in its init"
        ) from error
    handle = _Listening(time_mode)
    try:
        copy.init(handle)
        copy.close()
    except HoldfastError as error:
        raise ConfigurationError(f"{at}: {error.message}") from error
    except Exception as error:
        raise ConfigurationError(
            f"{at}: init raises {type(error).__name__}: {error}. It is called without a key, to "
            "learn which states there are"
        ) from error
    return code, tuple(handle.states.values())


class _Listening(StatefulProcessorHandle):
    """Hears which states there are; nothing can be read of them."""

    def __init__(self, time_mode: TimeMode) -> None:
        self._time_mode = time_mode
        self.states: dict[str, State] = {}

    def getValueState(
        self,
        stateName: str,
        schema: StructType | str,
        ttlDurationMs: int | None = None,
    ) -> ValueState:
        self._add(State(stateName, "value", _json(schema), ttl_ms=ttlDurationMs))
        nothing: Any = None
        return ValueState(nothing, stateName)

    def getListState(
        self,
        stateName: str,
        schema: StructType | str,
        ttlDurationMs: int | None = None,
    ) -> ListState:
        self._add(State(stateName, "list", _json(schema), ttl_ms=ttlDurationMs))
        nothing: Any = None
        return ListState(nothing, stateName)

    def getMapState(
        self,
        stateName: str,
        userKeySchema: StructType | str,
        valueSchema: StructType | str,
        ttlDurationMs: int | None = None,
    ) -> MapState:
        keys = _json(userKeySchema)
        self._add(State(stateName, "map", _json(valueSchema), keys, ttlDurationMs))
        nothing: Any = None
        return MapState(nothing, stateName)

    def registerTimer(self, expiryTimestampMs: int) -> None:
        raise ConfigurationError(
            f"init registers a timer for {expiryTimestampMs}, and timers belong to a key"
        )

    def deleteTimer(self, expiryTimestampMs: int) -> None:
        raise ConfigurationError(
            f"init deletes a timer of {expiryTimestampMs}, and timers belong to a key"
        )

    def listTimers(self) -> Any:
        raise ConfigurationError("init lists timers, and they belong to a key")

    def deleteIfExists(self, stateName: str) -> None:
        self.states.pop(stateName, None)

    def _add(self, state: State) -> None:
        check_name("state", state.name)
        if state.name == TIMERS:
            raise ConfigurationError(f"a state cannot be called {TIMERS!r}: every processor has it")
        if state.ttl_ms is not None and self._time_mode != "processingtime":
            raise ConfigurationError(
                f"state {state.name!r} has a time to live, and that is measured by processing "
                "time: write timeMode='ProcessingTime', as Spark wants it too"
            )
        if state.ttl_ms is not None and state.ttl_ms <= 0:
            raise ConfigurationError(f"state {state.name!r} lives {state.ttl_ms} ms: give it more")
        if self.states.setdefault(state.name, state) != state:
            raise ConfigurationError(f"init asks twice for state {state.name!r}, in other words")


def _json(schema: StructType | str) -> str:
    """Needs the JVM for DDL, as only a declaration has it."""
    made: Any = StructType.fromDDL(schema) if isinstance(schema, str) else schema
    if not isinstance(made, StructType):
        raise ConfigurationError(f"{schema!r} is one type, no columns: write 'name TYPE'")
    text: str = made.json()
    return text
