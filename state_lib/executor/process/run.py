"""Runs the processors of an application on one task's rows: rows first, then timers."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
from pyspark.sql.streaming import StatefulProcessor
from pyspark.sql.streaming.stateful_processor import ExpiredTimerInfo, TimerValues

from state_lib.errors import ProcessorFailed
from state_lib.executor.plan import UNBOUNDED, BatchPlan, ExchangePlan
from state_lib.executor.process import layout
from state_lib.executor.process.buffer import Buffer, OpenExchange
from state_lib.executor.process.expiry import Expiry
from state_lib.executor.process.failures import (
    PASSING,
    TooLarge,
    failed,
    is_of_machine,
    reason_of,
    unready,
)
from state_lib.executor.process.folding import folded
from state_lib.executor.process.given import Given, Group, InitialRows, letter
from state_lib.executor.process.handle import Handle
from state_lib.executor.process.pace import Pace
from state_lib.executor.process.results import Results
from state_lib.executor.process.states import Misused, Scene
from state_lib.executor.process.timers import Timers
from state_lib.processing import TIMERS, Processor
from state_lib.serdes import serde_from

MOST_KEYS = 100_000
"""Most keys whose initial state is taken by one commit; the next one takes others."""


@dataclass
class Told:
    """The results of processors for the commit's header.

    Attributes:
        letters: dead letters.
        due: when the next timer is due (ms), by time mode.
        overdue: whether there were more due timers than one commit runs.
    """

    letters: list[bytes] = field(default_factory=list)
    due: dict[str, int] = field(default_factory=dict)
    overdue: bool = False


@dataclass
class Begun:
    """A part of an initial state.

    Attributes:
        rows: number of its rows.
        due: see `Told`.
        to: its last key; None: there are no further keys.
    """

    rows: int = 0
    due: dict[str, int] = field(default_factory=dict)
    to: bytes | None = None


def run_all(
    plan: ExchangePlan,
    task: int,
    exchange: OpenExchange,
    table: pa.Table | None,
    pace: Pace,
) -> Told:
    """Run a new instance of every processor; sends puts and outputs to the exchange.

    Args:
        plan: of the batch.
        task: the partition.
        exchange: an open one; it is not committed here.
        table: entries of the task's batch.
        pace: of the exchange.

    Raises:
        ProcessorFailed: one raised, and the stream is to stop.
        ProcessorUnready: one could not be made, run or closed here, or takes too long.
    """
    told = Told()
    for number, processor in enumerate(plan.processors, len(plan.kept)):
        given = None
        if table is not None and number in table.column("kind").unique().to_pylist():
            given = Given(table, number, processor, plan.batch.sources())
        if processor.fold is not None:
            told.letters += folded(processor, plan.batch, exchange, given, pace)
            continue
        run = _Run(processor, plan.batch, task, exchange, pace)
        run.all(given)
        told.letters += run.letters
        told.overdue = told.overdue or run.overdue
        if run.due is not None:
            mode = processor.time_mode
            told.due[mode] = min(run.due, told.due.get(mode, run.due))
    return told


def run_initial(
    plan: ExchangePlan,
    task: int,
    exchange: OpenExchange,
    given: InitialRows | None,
    after: bytes | None,
    pace: Pace,
) -> Begun:
    """Give a processor a part of its initial state: keys after ``after``.

    Raises:
        ProcessorFailed: it raised: this part was not taken.
        ProcessorUnready: as for `run_all`.
    """
    processor = plan.beginning
    run = _Run(processor, plan.batch, task, exchange, pace)
    begun = run.begin(given, after)
    begun.due = {} if run.due is None else {processor.time_mode: run.due}
    return begun


class _Run:
    """The run of one processor, task and batch."""

    def __init__(
        self,
        processor: Processor,
        batch: BatchPlan,
        task: int,
        exchange: OpenExchange,
        pace: Pace,
    ) -> None:
        self._processor, self._exchange, self._task, self._pace = processor, exchange, task, pace
        self._limit = batch.limits.get(processor.name, UNBOUNDED)
        names = [processor.store(name) for name in (TIMERS, *(s.name for s in processor.states))]
        plain = {processor.store(s.name) for s in processor.states if s.kind == "value"}
        self._buffer, now = Buffer(exchange, names, plain), batch.batch_time
        self._timers = Timers(self._buffer, names[0])
        self._scene = Scene(self._buffer, names[0], now)
        self._handle = Handle(processor, self._scene, self._timers)
        self._results = Results(processor)
        self._serde = serde_from(processor.key_serde)
        self._behind_ms = processor.grace_ms if processor.time_mode == "eventtime" else 0
        watermark = batch.stream_time_ms - self._behind_ms
        self._time = watermark if processor.time_mode == "eventtime" else now
        timed = processor.time_mode != "none"
        self._values = TimerValues(now, max(watermark, 0)) if timed else TimerValues()
        self._records: list[tuple[bytes, bytes, int]] = []
        self.letters: list[bytes] = []
        self.due: int | None = None
        self.overdue = False

    def begin(self, given: InitialRows | None, after: bytes | None) -> Begun:
        """Take a part of the initial state, without rows and timers."""
        user, begun = self._made(), Begun()
        at: bytes | None = None
        groups = () if given is None else given.groups(after)
        for number, (key, size, rows) in enumerate(groups):
            if number == MOST_KEYS:
                begun.to = at
                break
            self._scene.key = at = key
            begun.rows += size
            for row in rows:
                self._initially(user, key, row)
            self._buffer.keep(0)
        self._ended(user)
        return begun

    def all(self, given: Given | None) -> None:
        """Run rows, then timers; remove expired entries; send the changes."""
        user = self._made()
        if given is not None:
            self._fetch(given.keys)
            for group in given.groups():
                self._on_rows(user, given, group)
        if self._processor.time_mode != "none":
            for expiry_ms, key in self._timers.due(self._time, self._fetch):
                self._on_timer(user, expiry_ms, key)
            self.overdue = self._timers.is_cut
        self._ended(user)

    def _made(self) -> StatefulProcessor:
        user: StatefulProcessor = self._surely("made anew", pickle.loads, self._processor.code)
        self._surely("init", user.init, self._handle)
        return user

    def _ended(self, user: StatefulProcessor) -> None:
        """Close it, remove expired entries, send the changes, and find the next due time."""
        self._scene.key = None
        self._surely("close", user.close)
        ends = [] if (least := self._timers.least()) is None else [least + self._behind_ms]
        if any(s.ttl_ms is not None for s in self._processor.states):
            expiry = Expiry(self._scene, self._handle.entries)
            expiry.remove()
            ends += [] if expiry.next_ms is None else [expiry.next_ms]
        self.due = min(ends, default=None)
        self._buffer.send()
        self._send_records()

    # ------------------------------------------------------------------ handlers

    def _on_rows(self, user: StatefulProcessor, given: Given, group: Group) -> None:
        def handle() -> Any:
            return user.handleInputRows(self._shown(group.key), given.rows(group), self._values)

        method = "handleInputRows"
        error = self._handled(method, group.key, group.time_ms, handle)
        if error is not None:
            self._stop_on(error, group.key, method)
            self.letters += given.letters(group, reason_of(self._processor, error), error)

    def _on_timer(self, user: StatefulProcessor, expiry_ms: int, key: bytes) -> None:
        def handle() -> Any:
            return user.handleExpiredTimer(
                self._shown(key), self._values, ExpiredTimerInfo(expiry_ms)
            )

        method = "handleExpiredTimer"
        error = self._handled(method, key, expiry_ms, handle)
        if error is not None:
            self._stop_on(error, key, method)
            place = {"topic": self._scene.timers, "partition": self._task, "offset": -1}
            reason = reason_of(self._processor, error, "raised-timer")
            self.letters.append(letter(place, reason, error, expiry_ms, key, None))
        self._timers.delete(key, expiry_ms)  # consumed, also if the handler raised
        self._buffer.keep(expiry_ms)

    def _handled(
        self, method: str, key: bytes, time_ms: int, handle: Callable[[], Any]
    ) -> BaseException | None:
        """Run a handler to its end, and keep all of its changes, or none if it raised."""
        self._scene.key = key
        try:
            with self._pace.at_work(self._processor.name, self._buffer):
                made = self._results.records(handle(), time_ms)
            self._check_sizes(key, made)
        except PASSING:
            raise
        except BaseException as error:  # noqa: BLE001 - SystemExit, and panics of Rust, too
            self._check_reads()
            self._check_machine(error, method)
            self._buffer.drop()
            return error
        self._check_reads()
        self._buffer.keep(time_ms)
        self._records += ((key, value, time) for value, time in made)
        return None

    def _check_reads(self) -> None:
        """Raise the error of a failed read, which the processor may have caught."""
        if self._buffer.broken is not None:
            raise self._buffer.broken

    def _check_machine(self, error: BaseException, method: str) -> None:
        if is_of_machine(error):
            raise unready(self._processor, self._task, error, method) from error

    def _check_sizes(self, key: bytes, made: Sequence[tuple[bytes, int]]) -> None:
        outputs = max((len(key) + len(value) for value, _ in made), default=0)
        size = max(outputs if self._processor.outputs else 0, self._buffer.largest)
        if size > self._limit:
            raise TooLarge(size, self._limit)

    # ------------------------------------------------------------------ failures

    def _stop_on(self, error: BaseException, key: bytes, method: str) -> None:
        if self._processor.on_error == "stop":
            raise self._failed(error, method, key) from error

    def _initially(self, user: StatefulProcessor, key: bytes, row: Any) -> None:
        try:
            with self._pace.at_work(self._processor.name, self._buffer):
                user.handleInitialState(self._shown(key), row, self._values)
        except PASSING:
            raise
        except BaseException as error:
            self._check_reads()
            self._check_machine(error, "handleInitialState")
            raise self._failed(error, "handleInitialState", None) from error

    def _surely(self, method: str, call: Callable[..., Any], *of: Any) -> Any:
        """Call code that belongs to no key and may open connections: another try may help."""
        try:
            return call(*of)
        except Misused as error:
            raise self._failed(error, method, None) from error
        except PASSING:
            raise
        except BaseException as error:
            self._check_reads()
            raise unready(self._processor, self._task, error, method) from error

    def _failed(self, error: BaseException, method: str, key: bytes | None) -> ProcessorFailed:
        shown = () if key is None else self._shown(key)
        return failed(self._processor, self._task, error, method, key, shown)

    # ------------------------------------------------------------------ inside

    def _shown(self, key: bytes) -> tuple[Any, ...]:
        """The columns of a key, as processors get it."""
        value = self._serde.deserialize(key)
        return tuple(value.values()) if isinstance(value, dict) else (value,)

    def _fetch(self, keys: Sequence[bytes]) -> None:
        """Read values of keys and ends of their lists ahead."""
        for state in self._processor.states:
            if state.kind == "value":
                self._buffer.fetch(self._processor.store(state.name), keys)
            elif state.kind == "list":
                at = (layout.ends_key(state.name, key) for key in keys)
                self._buffer.fetch(self._scene.timers, at)

    def _send_records(self) -> None:
        if not self._records:
            return
        keys, values, times = zip(*self._records, strict=True)
        columns = pa.array(keys, pa.binary()), pa.array(values, pa.binary())
        for topic in self._processor.outputs:
            self._exchange.output(topic, *columns, pa.array(times, pa.int64()))
