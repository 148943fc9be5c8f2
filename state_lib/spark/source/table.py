"""A store as a table: its columns, and how stored entries become them, columns at a time."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Any, NamedTuple

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_type, to_arrow_schema
from pyspark.sql.types import DataType, StructField, StructType, TimestampType

from state_lib.errors import HoldfastError, NotFound, SerdeError
from state_lib.keys import split_timestamps, split_window_keys
from state_lib.serdes import serde_from
from state_lib.serdes.arrays import shaped
from state_lib.serdes.columns import Ints
from state_lib.spark.source.metadata import METADATA, Repeated
from state_lib.specs import StoreSpec
from state_lib.stores.columns import MAX_BYTES, Columns

KEY, VALUE, START, END, STAMP, BESIDE = (
    "key",
    "value",
    "window_start",
    "window_end",
    "timestamp",
    "_metadata",
)
"""Parts of an entry. Each is a column of that name, but for structs, whose fields are columns."""
_HIDDEN = "_"
_MS, _US = pa.timestamp("ms", "UTC"), pa.timestamp("us", "UTC")


class Place(NamedTuple):
    """Where a column comes from.

    ``field``: of the part, which is a struct then; None for all of the part.
    """

    part: str
    field: str | None
    kind: DataType


def places_of(spec: StoreSpec) -> dict[str, Place]:
    """Every column of a store, in order.

    Fields of a struct are columns of their own, unless two columns had one name then: so it stays
    one column. Fields of a value that begin with ``_`` are bookkeeping, and are left out.
    """
    times = [*([START, END] if spec.is_window else []), *([STAMP] if spec.is_timestamped else [])]
    taken = {*times, BESIDE}
    keys = _spread(KEY, serde_from(spec.key_serde).arrow_type, {*taken, VALUE})
    values = _spread(
        VALUE, serde_from(spec.value_serde).arrow_type, taken | {name.lower() for name in keys}
    )
    windows = {name: Place(name, None, TimestampType()) for name in times if name != STAMP}
    stamps = {STAMP: Place(STAMP, None, TimestampType())} if spec.is_timestamped else {}
    return {**keys, **windows, **values, **stamps, BESIDE: Place(BESIDE, None, METADATA)}


class Table:
    """Some columns of a store.

    Args:
        app: the store's application, for errors.
        spec: what it is.
        names: of columns, in order, whatever their case; None for all.

    Attributes:
        schema: of the DataFrame.

    Raises:
        NotFound: no such column; lists those that there are.
    """

    def __init__(self, app: str, spec: StoreSpec, names: Sequence[str] | None = None) -> None:
        self._app, self._spec = app, spec
        self._places = _chosen(spec, places_of(spec), names)
        # All nullable: Spark compares batches with its schema exactly, and has all nullable there.
        self.schema = StructType([StructField(n, place.kind) for n, place in self._places.items()])
        self._arrow = to_arrow_schema(self.schema, timezone="UTC")
        self._keys = serde_from(spec.key_serde)
        self._values = serde_from(spec.value_serde)

    def batches(self, part: Columns, beside: Repeated) -> Iterator[pa.RecordBatch]:
        """The rows of stored entries, each with the same ``_metadata``.

        Raises:
            HoldfastError: what is stored is not what the serdes say.
        """
        try:
            parts = self._parts(part)
        except (SerdeError, pa.ArrowInvalid) as error:
            raise HoldfastError(
                f"store {self._spec.name!r} of {self._app!r} holds an entry that its serdes cannot "
                f"read: {error}; leave its columns out by the option 'columns'",
                app=self._app,
                store=self._spec.name,
            ) from error
        rows = len(part.keys)
        step = rows
        if BESIDE in self._places:
            step = max(1, min(rows, MAX_BYTES // max(1, beside.nbytes)))
        for start in range(0, rows, step):
            count = min(step, rows - start)
            arrays = [
                beside.rows(count)
                if place.part == BESIDE
                else shaped(_column(parts[place.part], place).slice(start, count), field.type)
                for place, field in zip(self._places.values(), self._arrow, strict=True)
            ]
            yield pa.record_batch(arrays, schema=self._arrow)

    def _parts(self, part: Columns) -> dict[str, pa.Array]:
        """What the columns need of entries, decoded."""
        wanted = {place.part for place in self._places.values()}
        keys, values, found = part.keys, part.values, dict[str, pa.Array]()
        if self._spec.is_window and wanted & {KEY, START, END}:
            keys, starts = split_window_keys(keys)
            found[START] = _times(starts)
            found[END] = _times(starts + self._spec.window_size_ms)
        if self._spec.is_timestamped and wanted & {VALUE, STAMP}:
            values, stamps = split_timestamps(values)
            found[STAMP] = _times(stamps)
        if KEY in wanted:
            found[KEY] = self._keys.decode_arrow(keys)
        if VALUE in wanted:
            found[VALUE] = self._values.decode_arrow(values)
        return found


def _spread(part: str, kind: pa.DataType, taken: Collection[str]) -> dict[str, Place]:
    """The columns that one part makes. ``taken``: names, in lower case, that others have."""
    if not pa.types.is_struct(kind):
        return {part: Place(part, None, _spark(kind))}
    shown = [f for f in kind if part == KEY or not f.name.startswith(_HIDDEN)]
    lower = {field.name.lower() for field in shown}
    if len(lower) < len(shown) or not lower or lower & set(taken):
        return {part: Place(part, None, _spark(pa.struct(shown or list(kind))))}
    return {field.name: Place(part, field.name, _spark(field.type)) for field in shown}


def _chosen(
    spec: StoreSpec, places: dict[str, Place], names: Sequence[str] | None
) -> dict[str, Place]:
    if names is None:
        return places
    known = {name.lower(): name for name in places}
    if unknown := [name for name in names if name.lower() not in known]:
        raise NotFound(
            f"store {spec.name!r} has no columns {unknown}; its columns: {list(places)}",
            columns=unknown,
            known=list(places),
        )
    return {known[name.lower()]: places[known[name.lower()]] for name in names}


def _spark(kind: pa.DataType) -> DataType:
    return from_arrow_type(kind, prefer_timestamp_ntz=True)


def _column(array: Any, place: Place) -> Any:
    """A field of a part, or all of it without what is hidden."""
    if place.field is not None:
        return array.field(place.field)
    if not pa.types.is_struct(array.type):
        return array
    names = place.kind.names if isinstance(place.kind, StructType) else []
    return pa.StructArray.from_arrays([array.field(name) for name in names], names=names)


def _times(ms: Ints) -> pa.Array:
    """Milliseconds as Spark's timestamps; pa.ArrowInvalid beyond the year 294,246."""
    return pa.array(ms).cast(_MS).cast(_US)
