"""The rows of a task's batch by key, in order, in the form for processors."""

from __future__ import annotations

import base64
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Row

from state_lib.executor.process.failures import described
from state_lib.executor.process.schemas import struct_of
from state_lib.processing import Processor


@dataclass(frozen=True)
class Group:
    """Rows ``first`` to ``last`` of one key. ``time_ms``: their greatest time.

    ``start``: of their window (ms); 0 without windows.
    """

    key: bytes
    first: int
    last: int
    time_ms: int
    start: int = 0


class Given:
    """Rows of one processor: by key, window, time, topic, partition, offset, place in the record.

    Args:
        table: entries of the task's batch, see `state_lib.spark.process.rows`.
        number: of the processor's verb.
        processor: the processor.
        sources: topic and partition by the number that rows have for them.
    """

    def __init__(
        self,
        table: pa.Table,
        number: int,
        processor: Processor,
        sources: Sequence[tuple[str, int]],
    ) -> None:
        table = table.filter(pc.equal(table.column("kind"), number))
        rows = _flat(table.column(f"r{number}"))
        src = _flat(table.column("src")).to_numpy(zero_copy_only=False)
        rank = np.empty(len(sources), np.int64)
        rank[sorted(range(len(sources)), key=sources.__getitem__)] = np.arange(len(sources))
        order: dict[str, Any] = {
            "key": _flat(table.column("key")),
            "start": _flat(table.column("start")),
            "ts": _flat(table.column("ts")),
            "src": pa.array(rank[src]),
            "offset": pc.struct_field(rows, "offset"),
        }
        for place in range(processor.explodes):
            order[f"p{place}"] = pc.struct_field(rows, f"p{place}")
        ascending: Any = [(name, "ascending") for name in order]
        by = pc.sort_indices(pa.table(order), sort_keys=ascending)
        self._rows = rows.take(by)
        self._keys: list[bytes] = order["key"].take(by).to_pylist()
        self._starts: list[int] = order["start"].take(by).to_pylist()
        self._times: list[int] = order["ts"].take(by).to_pylist()
        self._src: list[int] = pa.array(src).take(by).to_pylist()
        self._offsets = order["offset"].take(by)
        self._sources = sources
        self._names = struct_of(processor.rows).names
        self._pandas = processor.pandas
        fields = pc.struct_field(self._rows, "row").flatten()
        self._table = pa.Table.from_arrays(fields, names=self._names)
        self._columns = [] if self._pandas else [field.to_pylist() for field in fields]

    @property
    def keys(self) -> list[bytes]:
        """The keys of all rows, ascending."""
        return self._keys

    def groups(self) -> Iterator[Group]:
        """Groups by key, and by window if there are windows."""
        keys, starts, first = self._keys, self._starts, 0
        for at in range(1, len(keys) + 1):
            if at == len(keys) or keys[at] != keys[first] or starts[at] != starts[first]:
                yield Group(keys[first], first, at, self._times[at - 1], starts[first])
                first = at

    def each(self, group: Group) -> Iterator[tuple[Group, Any]]:
        """Rows one by one, each as a group of its own."""
        for at, row in zip(range(group.first, group.last), self.rows(group), strict=True):
            yield Group(group.key, at, at + 1, self._times[at], group.start), row

    def rows(self, group: Group) -> Iterator[Any]:
        """The argument for the processor: `Row`s, or one pandas DataFrame."""
        if self._pandas:
            return iter([_pandas(self._table.slice(group.first, group.last - group.first))])
        row = Row(*self._names)
        return map(row, *(column[group.first : group.last] for column in self._columns))

    def place(self, group: Group) -> tuple[int, int]:
        """Number of the source partition and offset of the first row's record."""
        return self._src[group.first], self._offsets[group.first].as_py()

    def letters(self, group: Group, reason: str, error: BaseException) -> list[bytes]:
        """Dead letters for the records of a group, one for each."""
        part = self._rows.slice(group.first, group.last - group.first)
        offsets = pc.struct_field(part, "offset").to_pylist()
        keys = pc.struct_field(part, "key").to_pylist()
        values = pc.struct_field(part, "value").to_pylist()
        stamped = part.type.get_field_index("stamp") >= 0  # else event time is the record's time
        stamps = (
            pc.struct_field(part, "stamp").to_pylist() if stamped else self._times[group.first :]
        )
        made: dict[tuple[int, int], bytes] = {}
        for at, offset in enumerate(offsets):
            src = self._src[group.first + at]
            topic, partition = self._sources[src]
            place = {"topic": topic, "partition": partition, "offset": offset}
            made[src, offset] = letter(place, reason, error, stamps[at], keys[at], values[at])
        return list(made.values())


class InitialRows:
    """One task's rows of `state_lib.spark.process.initial.initial_rows`, by key."""

    def __init__(self, table: pa.Table, processor: Processor) -> None:
        by = pc.sort_indices(table.column("key"))
        self._keys: list[bytes] = table.column("key").take(by).to_pylist()
        rows = table.column("row").take(by).combine_chunks()
        names = struct_of(processor.initial).names
        self._table = pa.Table.from_arrays(rows.flatten(), names=names)
        self._pandas = processor.pandas

    def groups(self, after: bytes | None = None) -> Iterator[tuple[bytes, int, Iterator[Any]]]:
        """Keys after one, ascending, each with the number of its rows and the rows.

        Rows are in the form for ``handleInitialState``.
        """
        keys = self._keys
        begin = first = 0 if after is None else bisect_right(keys, after)
        for at in range(begin + 1, len(keys) + 1):
            if at == len(keys) or keys[at] != keys[first]:
                size, part = at - first, self._table.slice(first, at - first)
                yield keys[first], size, iter([_pandas(part)]) if self._pandas else _rows(part)
                first = at


def letter(
    place: dict[str, Any],
    reason: str,
    error: BaseException,
    time_ms: int,
    key: bytes | None,
    value: bytes | None,
) -> bytes:
    """A dead letter in the form of `state_lib.host.letters`."""
    said = {**place, "reason": reason, "timestamp": time_ms, "exception": described(error)}
    raw = {"key": key, "value": value}
    encoded = {n: base64.b64encode(b).decode() for n, b in raw.items() if b is not None}
    return orjson.dumps(said | encoded)


def _flat(column: pa.ChunkedArray) -> Any:
    return column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)


def _pandas(table: pa.Table) -> Any:
    """A DataFrame as Spark makes it: times in UTC, without a zone."""
    columns = {
        name: column.cast(pa.timestamp("ns")) if pa.types.is_timestamp(column.type) else column
        for name, column in zip(table.column_names, table.columns, strict=True)
    }
    return pa.table(columns).to_pandas(date_as_object=True)


def _rows(table: pa.Table) -> Iterator[Row]:
    row = Row(*table.column_names)
    return map(row, *(column.to_pylist() for column in table.columns))
