"""Folds rows into one value by key (and window), by a user's functions: `reduce`, `aggregate`.

Functions always get values as the store returns them: a result is packed and read again before the
next row. So it does not matter how the stream was cut into batches, and changing a value in place
has no effect.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

import orjson
import pyarrow as pa
from pyspark.sql import Row

from state_lib.declaration import WINDOW_FIELDS
from state_lib.errors import ProcessorFailed
from state_lib.executor.plan import UNBOUNDED, BatchPlan
from state_lib.executor.process.arguments import from_arrow
from state_lib.executor.process.buffer import Buffer, OpenExchange
from state_lib.executor.process.codec import RowCodec
from state_lib.executor.process.failures import (
    PASSING,
    TooLarge,
    failed,
    is_of_machine,
    reason_of,
    unready,
)
from state_lib.executor.process.given import Given, Group
from state_lib.executor.process.growth import growth
from state_lib.executor.process.pace import Pace
from state_lib.executor.process.schemas import struct_of
from state_lib.executor.process.values import Convert, shown
from state_lib.keys import split_timestamp, window_key
from state_lib.processing import Fold, Processor
from state_lib.serdes import serde_from
from state_lib.serdes.shown import to_json

_FIXED = 128
"""Most bytes in JSON of a column that has no bound of its own."""
_AT_ONCE = 100
"""Rows between two checks of the time."""
_ITS = "its function"
_SEQUENCE = 4
"""Bytes at the end of a window's key that Kafka Streams' windowed topic serde leaves out."""


def folded(
    processor: Processor, batch: BatchPlan, exchange: OpenExchange, given: Given | None, pace: Pace
) -> list[bytes]:
    """Fold a task's rows; sends puts and outputs to the exchange, and returns dead letters.

    Raises:
        ProcessorFailed: a function raised, and is to stop the stream.
        ProcessorUnready: functions cannot be made or run here, or take too long.
    """
    if given is None or processor.fold is None:
        return []
    run = _Folding(processor, processor.fold, batch, exchange, pace)
    run.all(given)
    return run.letters


class Folded:
    """Packs values of a fold: a `Row`, or a single value."""

    def __init__(self, schema: str, *, single: bool) -> None:
        self._codec, self._single = RowCodec(struct_of(schema)), single
        self._row = Row(*struct_of(schema).names)

    def pack(self, value: Any) -> bytes:
        """Raises TypeError or ValueError for a value of another type."""
        return self._codec.pack((value,) if self._single else value)

    def unpack(self, raw: bytes) -> Any:
        """The inverse of `pack`."""
        fields = self._codec.unpack(raw)
        return fields[0] if self._single else self._row(*fields)


class Functions:
    """A user's functions over packed values.

    Args:
        code: the initializer (None for `reduce`) and the other function, pickled.
        folded: the value.
    """

    def __init__(self, code: bytes, folded: Folded) -> None:
        self._folded = folded
        begin: Callable[[], Any] | None
        begin, self._join = pickle.loads(code)  # noqa: S301 - the job's own
        self._begin = begin

    def next(self, key: Any, row: Any, old: bytes | None) -> bytes | None:
        """The packed value after a row; None: it is removed.

        Raises:
            TypeError, ValueError: a value of another type.
            Exception: whatever the functions raise.
        """
        if self._begin is None:
            made = row if old is None else self._join(self._folded.unpack(old), row)
        else:
            made = self._join(key, row, self.first() if old is None else self._folded.unpack(old))
        return None if made is None else self._folded.pack(made)

    def first(self) -> Any:
        """The value before the first row, as the store would return it. Raises as `next`."""
        made = None if self._begin is None else self._begin()
        return None if made is None else self._folded.unpack(self._folded.pack(made))


class _Folding:
    """One verb, task and batch."""

    def __init__(
        self,
        processor: Processor,
        fold: Fold,
        batch: BatchPlan,
        exchange: OpenExchange,
        pace: Pace,
    ) -> None:
        self._processor, self._store, self._exchange = processor, fold.store, exchange
        self._pace = pace
        self._limit = batch.limits.get(processor.name, UNBOUNDED)
        self._buffer = Buffer(exchange, [fold.store.name], [fold.store.name])
        self._keys = serde_from(processor.key_serde)
        self._folded = Folded(processor.results, single=fold.single)
        self._said = _Said(processor, fold)
        self._as_given = _as_given(processor)
        self._records: list[tuple[bytes, bytes | None, int]] = []
        self.letters: list[bytes] = []
        try:
            self._functions = Functions(processor.code, self._folded)
        except Exception as error:
            raise unready(processor, pace.task, error, "its functions, made anew") from error

    def all(self, given: Given) -> None:
        """Fold all rows, then send the changes."""
        groups = list(given.groups())
        self._buffer.fetch(self._store.name, map(self._entry, groups))
        for group in groups:
            self._on_rows(given, group)
        self._buffer.send()
        if self._records and self._processor.outputs:
            keys, values, times = zip(*self._records, strict=True)
            columns = pa.array(keys, pa.binary()), pa.array(values, pa.binary())
            for topic in self._processor.outputs:
                self._exchange.output(topic, *columns, pa.array(times, pa.int64()))

    # ------------------------------------------------------------------ inside

    def _on_rows(self, given: Given, group: Group) -> None:
        entry, raw_key = self._entry(group), self._keys.deserialize(group.key)
        key = Row(*raw_key)(*raw_key.values()) if isinstance(raw_key, dict) else raw_key
        stored = self._buffer.get(self._store.name, entry)
        value, time_ms = (None, 0) if stored is None else split_timestamp(stored)
        changed, letters = False, dict[tuple[int, int, str], bytes]()
        for one, row in self._paced(given.each(group)):
            try:
                made = self._functions.next(key, self._as_given(row), value)
                self._check_size(entry, raw_key, group, made)
            except PASSING:
                raise
            except BaseException as error:
                if is_of_machine(error):
                    raise unready(self._processor, self._pace.task, error, _ITS) from error
                if self._processor.on_error == "stop":
                    raise self._failed(error, group.key, key) from error
                reason = reason_of(self._processor, error)
                (letter,) = given.letters(one, reason, error)
                letters.setdefault((*given.place(one), reason), letter)
                continue
            since = 0 if value is None else time_ms  # a removed value leaves no time
            value, time_ms, changed = made, max(since, one.time_ms), True
        self.letters += letters.values()
        if changed:
            self._buffer.put(self._store.name, entry, value)
            self._buffer.keep(time_ms)
            said = self._json(raw_key, group, value)
            self._records.append((self._record_key(entry), said, time_ms))

    def _paced(self, rows: Iterator[tuple[Group, Any]]) -> Iterator[tuple[Group, Any]]:
        """The rows; checks the time also within a key of many rows, so that errors name the key."""
        while some := [*islice(rows, _AT_ONCE)]:
            with self._pace.at_work(self._processor.name, self._buffer, len(some)):
                yield from some

    def _failed(self, error: BaseException, key: bytes, shown: Any) -> ProcessorFailed:
        columns = shown if isinstance(shown, Row) else (shown,)
        return failed(self._processor, self._pace.task, error, _ITS, key, columns)

    def _entry(self, group: Group) -> bytes:
        return window_key(group.key, group.start) if self._store.is_window else group.key

    def _record_key(self, entry: bytes) -> bytes:
        return entry[:-_SEQUENCE] if self._store.is_window else entry

    def _json(self, key: Any, group: Group, value: bytes | None) -> bytes | None:
        """The output's value; None if there is no output."""
        if value is None or not self._processor.outputs:
            return None
        return self._said.json(key, group.start, self._folded.unpack(value))

    def _check_size(self, entry: bytes, key: Any, group: Group, value: bytes | None) -> None:
        if value is None:
            return
        size = len(entry) + len(value)
        if self._processor.outputs and size * self._said.growth + self._said.fixed > self._limit:
            size = max(size, len(entry) + len(self._json(key, group, value) or b""))
        if size > self._limit:
            raise TooLarge(size, self._limit)


class _Said:
    """Values of outputs: JSON with key, window and columns, as those of `agg`.

    Attributes:
        fixed: most bytes of it beside texts, bytes and nested values.
        growth: most bytes in JSON for one byte of a packed value.
    """

    def __init__(self, processor: Processor, fold: Fold) -> None:
        schema = struct_of(processor.results)
        self._fields = [(f.name, shown(f.dataType)) for f in schema.fields]
        self._key_name, self._key_columns, self._single = (
            fold.key_name,
            fold.key_columns,
            fold.single,
        )
        self._serde, self._window_ms = processor.key_serde, fold.store.window_size_ms
        of_key = [fold.key_name, *fold.key_columns]
        names = [*of_key, *WINDOW_FIELDS, *(name for name, _ in self._fields)]
        self.fixed = sum(len(name.encode()) + _FIXED for name in names)
        self.growth = max(growth(f.dataType) for f in schema.fields)

    def json(self, key: Any, start: int, value: Any) -> bytes:
        """One record's value."""
        said = self._of_key(key)
        if self._window_ms:
            said |= zip(WINDOW_FIELDS, (start, start + self._window_ms), strict=True)
        values = (value,) if self._single else value
        for (name, show), one in zip(self._fields, values, strict=True):
            said[name] = None if one is None else show(one)
        return orjson.dumps(said)

    def _of_key(self, key: Any) -> dict[str, Any]:
        """The key by its name, or its columns by theirs, without those that the value has."""
        if not self._key_name and not self._key_columns:
            return {}
        shown: Any = to_json(self._serde, key)
        if self._key_name:
            return {self._key_name: shown}
        return {name: shown[name] for name in self._key_columns}


def _as_given(processor: Processor) -> Convert:
    """A conversion of a row's values to the form in which stores return them."""
    schema = struct_of(processor.rows)
    converts = [from_arrow(f.dataType) for f in schema.fields]
    if not any(converts):
        return lambda row: row
    made = Row(*schema.names)
    return lambda row: made(
        *(v if c is None or v is None else c(v) for c, v in zip(converts, row, strict=True))
    )
