"""The handle that a processor gets in ``init``: Spark's class, over states of a task's exchange."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeVar

from pyspark.sql.streaming.stateful_processor import (
    ListState,
    MapState,
    StatefulProcessorHandle,
    ValueState,
)
from pyspark.sql.types import StructType

from state_lib.executor.process.codec import RowCodec
from state_lib.executor.process.schemas import struct_of
from state_lib.executor.process.states import Entries, List, Map, Misused, Scene, Value
from state_lib.executor.process.timers import Timers
from state_lib.processing import Processor

T = TypeVar("T")


class Handle(StatefulProcessorHandle):
    """The handle of one processor, task and batch.

    Args:
        processor: with the states that it asked for when it was declared.
        scene: of its states.
        timers: its timers.
    """

    def __init__(self, processor: Processor, scene: Scene, timers: Timers) -> None:
        self._scene, self._timers = scene, timers
        self._name, self._timed = processor.name, processor.time_mode != "none"
        self.entries = {s.name: Entries(scene, processor, s) for s in processor.states}
        self._states: dict[str, Any] = {}
        for state in processor.states:
            entries = self.entries[state.name]
            match state.kind:
                case "value":
                    self._states[state.name] = Value(entries)
                case "list":
                    self._states[state.name] = List(entries)
                case "map":
                    self._states[state.name] = Map(entries, RowCodec(struct_of(state.key_schema)))

    def getValueState(
        self,
        stateName: str,
        schema: StructType | str,  # noqa: ARG002 - it was read at the declaration
        ttlDurationMs: int | None = None,  # noqa: ARG002 - as above
    ) -> ValueState:
        """The value state of that name."""
        return self._state(stateName, ValueState)

    def getListState(
        self,
        stateName: str,
        schema: StructType | str,  # noqa: ARG002 - as above
        ttlDurationMs: int | None = None,  # noqa: ARG002 - as above
    ) -> ListState:
        """The list state of that name."""
        return self._state(stateName, ListState)

    def getMapState(
        self,
        stateName: str,
        userKeySchema: StructType | str,  # noqa: ARG002 - as above
        valueSchema: StructType | str,  # noqa: ARG002 - as above
        ttlDurationMs: int | None = None,  # noqa: ARG002 - as above
    ) -> MapState:
        """The map state of that name."""
        return self._state(stateName, MapState)

    def registerTimer(self, expiryTimestampMs: int) -> None:
        """Add a timer of the current key. One that is due runs in this batch."""
        self._timers.register(self._key(), expiryTimestampMs)

    def deleteTimer(self, expiryTimestampMs: int) -> None:
        """Remove a timer of the current key, if there is one."""
        self._timers.delete(self._key(), expiryTimestampMs)

    def listTimers(self) -> Iterator[int]:
        """Expiries of the current key's timers, ascending."""
        return self._timers.of(self._key())

    def deleteIfExists(self, stateName: str) -> None:
        """Nothing to do: a state that ``init`` does not ask for is not in the topology."""

    def _key(self) -> bytes:
        if not self._timed:
            raise Misused(
                f"processor {self._name!r} has timeMode='None', and with it no timers: declare it "
                "with 'EventTime' or 'ProcessingTime'"
            )
        return self._scene.of("timers")

    def _state(self, name: str, kind: type[T]) -> T:
        found = self._states.get(name)
        if not isinstance(found, kind):
            raise Misused(
                f"init asks for a state {name!r} that it did not ask for when it was declared: the "
                "states of a processor are always the same"
            )
        return found
