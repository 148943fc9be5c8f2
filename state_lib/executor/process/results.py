"""Rows that a processor yields, as records of its outputs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import orjson
from pyspark.sql.types import DoubleType, FloatType

from state_lib.executor.process.schemas import struct_of
from state_lib.executor.process.values import fields_of, is_missing, shown, to_field
from state_lib.processing import Processor


class Results:
    """Converts the rows of one processor."""

    def __init__(self, processor: Processor) -> None:
        schema = struct_of(processor.results)
        self._names = schema.names
        self._shown = [shown(f.dataType) for f in schema.fields]
        self._fractions = [isinstance(f.dataType, DoubleType | FloatType) for f in schema.fields]
        self._pandas = processor.pandas
        self._time = self._names.index(processor.event_time) if processor.event_time else None
        self._micros = None if self._time is None else to_field(schema.fields[self._time].dataType)

    def records(self, yielded: Iterable[Any] | None, time_ms: int) -> list[tuple[bytes, int]]:
        """Run a handler's generator to its end; returns values (JSON) and times of its rows.

        Raises:
            TypeError: a row does not fit the schema.
            Exception: whatever the handler raises.
        """
        if yielded is None:
            return []
        rows = self._of_frames(yielded) if self._pandas else map(self._row, yielded)
        return [(self._json(row), self._time_of(row, time_ms)) for row in rows]

    def _row(self, row: Any) -> list[Any]:
        return fields_of(row, self._names)

    def _of_frames(self, frames: Iterable[Any]) -> Iterator[list[Any]]:
        for frame in frames:
            by_name = all(isinstance(name, str) for name in frame.columns)
            wanted = frame[self._names] if by_name else frame
            if len(wanted.columns) != len(self._names):
                raise TypeError(
                    f"a DataFrame has columns {list(frame.columns)}, and is to have {self._names}"
                )
            for row in wanted.itertuples(index=False, name=None):
                yield [
                    None if is_missing(value) and not (fraction and value is not None) else value
                    for value, fraction in zip(row, self._fractions, strict=True)
                ]

    def _json(self, row: list[Any]) -> bytes:
        columns = zip(self._names, self._shown, row, strict=True)
        return orjson.dumps({n: None if v is None else f(v) for n, f, v in columns})

    def _time_of(self, row: list[Any], time_ms: int) -> int:
        if self._time is None or self._micros is None or row[self._time] is None:
            return max(time_ms, 0)
        return max(int(self._micros(row[self._time])) // 1000, 0)
