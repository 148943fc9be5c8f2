"""Spark's stateful processors as verbs of a grouped stream."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from state_lib.durations import Duration, to_ms
from state_lib.errors import ConfigurationError
from state_lib.names import check_name
from state_lib.verbs import Verbs

if TYPE_CHECKING:
    from pyspark.sql.streaming import StatefulProcessor
    from pyspark.sql.types import StructType

    from state_lib.declaration import Declaration, Expression
    from state_lib.grouped import TimeWindows
    from state_lib.processing import OnError
    from state_lib.serdes.kinds import Kind
    from state_lib.streams import KStream


@dataclass(frozen=True)
class Wanted:
    """What `transformWithState` is given."""

    name: str
    processor: StatefulProcessor
    results: StructType | str
    output_mode: str
    time_mode: str
    event_time: str
    on_error: str
    grace_ms: int
    initial: object
    pandas: bool


class Processing(Verbs):
    """The verbs of `KGroupedStream` that run a processor of Spark's, and take what Spark's take."""

    _stream: KStream
    _key: Expression
    _serde: Kind
    _name: str
    _windows: TimeWindows | None

    def transformWithState(  # noqa: PLR0913 - Spark's
        self,
        statefulProcessor: StatefulProcessor,
        outputStructType: StructType | str,
        outputMode: str,
        timeMode: str,
        initialState: object = None,
        eventTimeColumnName: str = "",
        *,
        name: str,
        grace: Duration = 0,
        onError: OnError = "dead-letter",
    ) -> ProcessedStream:
        """Let a processor take the rows of each key, and keep state between batches.

        Rows are PySpark's `Row`s, by time, topic, partition, offset. After all rows, timers run
        whose time has come, by expiry and key. Each task and batch has a processor of its own.

        Args:
            statefulProcessor: whose methods are called. It must be picklable.
            outputStructType: of the rows that it yields.
            outputMode: ``Append`` or ``Update``; both write each row once, as it is.
            timeMode: ``EventTime`` (timers by event time; late rows are dropped and counted),
                ``ProcessingTime`` (timers and times to live by the batch's time) or ``None``.
            initialState: a DataFrame by key, ``df.groupBy("key")``: its rows go to
                ``handleInitialState``, once, before the first batch of each task.
            eventTimeColumnName: the timestamp column that is the time of outputs; without one that
                is the greatest of the key's rows, or the timer's expiry.
            name: of the processor. Stores are ``<name>-<state>`` and ``<name>-timers``.
            grace: how far event time lies behind stream time, as the delay of Spark's watermark:
                rows before it are late, timers up to it run.
            onError: what becomes of rows on which it raises: ``dead-letter`` (those of the key in
                this batch; its state stays as it was) or ``stop``.

        Raises:
            ConfigurationError: a mode or a schema that cannot be; the processor cannot be pickled,
                or its ``init`` raises.
        """
        return self._processed(
            Wanted(
                name, statefulProcessor, outputStructType, outputMode, timeMode,
                eventTimeColumnName, onError, to_ms(grace), initialState, pandas=False,
            )
        )  # fmt: skip

    def transformWithStateInPandas(  # noqa: PLR0913 - Spark's
        self,
        statefulProcessor: StatefulProcessor,
        outputStructType: StructType | str,
        outputMode: str,
        timeMode: str,
        initialState: object = None,
        eventTimeColumnName: str = "",
        *,
        name: str,
        grace: Duration = 0,
        onError: OnError = "dead-letter",
    ) -> ProcessedStream:
        """As `transformWithState`, with pandas' DataFrames: one of all rows of a key in a batch."""
        return self._processed(
            Wanted(
                name, statefulProcessor, outputStructType, outputMode, timeMode,
                eventTimeColumnName, onError, to_ms(grace), initialState, pandas=True,
            )
        )  # fmt: skip

    def _processed(self, wanted: Wanted) -> ProcessedStream:
        from state_lib.serdes.kinds import columns_of  # noqa: PLC0415 - needs Arrow
        from state_lib.spark.process.declaring import process_of  # noqa: PLC0415 - needs PySpark

        verb = "transformWithStateInPandas" if wanted.pandas else "transformWithState"
        at = f"{self._stream._at(verb)} of {wanted.name!r}"  # noqa: SLF001 - ours
        if self._windows is not None:
            raise ConfigurationError(
                f"{at} keeps its own state: windowedBy(...) means nothing to it. Group by the key "
                "alone, and let the processor look at the time of rows"
            )
        if self._name and (found := columns_of(self._serde)):
            text = self._key.text
            columns = ", ".join(repr(f"{text}.{c}") for c, _ in found)
            instead = f"groupBy({columns})"
            if "(" in text:  # an expression, not a column's name
                instead = f"Leave .alias({self._name!r}) out"
            raise ConfigurationError(
                f"{at}: the key {self._name!r} is a struct, and a processor is given its columns. "
                f"Group by them: {instead}"
            )
        made = process_of(self._stream, self._key, self._serde, wanted, at)
        app = self._stream._app  # noqa: SLF001 - ours
        app.processes.append(made)
        return ProcessedStream(app, len(app.processes) - 1)


class ProcessedStream(Verbs):
    """Rows that a processor yields."""

    _CALLED = "what a processor yields"
    _INSTEAD = (
        "Let it yield rows as they are to be written, or read the topic in another application"
    )

    def __init__(self, app: Declaration, index: int) -> None:
        self._app, self._index = app, index

    def to(self, topic: str) -> None:
        """Write every row to a topic, in the transaction that changes the states.

        Keys are the grouping key, values JSON objects.
        """
        check_name("topic", topic)
        old = self._app.processes[self._index]
        outputs = (*old.processor.outputs, topic)
        self._app.processes[self._index] = replace(
            old, processor=replace(old.processor, outputs=outputs)
        )
