"""The exchange of one task and batch, once it is open: gets, then changes, then one commit."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from pyarrow import flight

from state_lib.protocol.marker import CommitHeader, Marker
from state_lib.protocol.wire import UP, pack, unpack
from state_lib.stores.pages import Page

CHUNK_ROWS = 200_000
"""Rows per Flight message, so that no message nears the 2 GiB of a binary column."""


@contextlib.contextmanager
def closing_call(writer: Any) -> Iterator[None]:
    """End a call, whatever has become of it."""
    try:
        yield
    finally:
        with contextlib.suppress(flight.FlightError, pa.ArrowException, OSError):
            writer.close()


class Exchange:
    """An open exchange: any number of gets, then changes, then one commit."""

    def __init__(self, writer: Any, reader: Any, first: dict[str, Any]) -> None:
        self._writer, self._reader = writer, reader
        self.marker = Marker.from_json(first["marker"])
        self.already_done: bool = first["op"] == "already"

    def get(self, store: str, keys: pa.BinaryArray) -> pa.BinaryArray:
        """Stored values of sorted composite keys; null where absent or expired."""
        parts = []
        for start in range(0, len(keys), CHUNK_ROWS):
            chunk = keys[start : start + CHUNK_ROWS]
            self._send({"op": "get", "store": store}, chunk, None, None)
            parts.append(self._reader.read_chunk().data.column(0))
        return pa.concat_arrays(parts) if parts else pa.array([], pa.binary())

    def page(self, store: str, lower: bytes | None, upper: bytes | None, rows: int) -> Page:
        """The first entries with ``lower <= key < upper``, as `state_lib.stores.pages.page_of`."""
        low, high = (None if bound is None else bound.hex() for bound in (lower, upper))
        message = {"op": "page", "store": store, "lower": low, "upper": high, "rows": rows}
        self._writer.write_metadata(pack(message))
        return Page.of(self._reader.read_chunk().data.column(0))

    def put(
        self, store: str, keys: pa.BinaryArray, values: pa.BinaryArray, timestamps: pa.Int64Array
    ) -> None:
        """Changes of a store; a null value deletes."""
        self._send_all({"op": "put", "store": store}, keys, values, timestamps)

    def output(
        self, topic: str, keys: pa.BinaryArray, values: pa.BinaryArray, timestamps: pa.Int64Array
    ) -> None:
        """Records for an output topic, in the same transaction."""
        self._send_all({"op": "output", "topic": topic}, keys, values, timestamps)

    def dead_letters(self, letters: pa.BinaryArray) -> None:
        """Records that could not be used, as `state_lib.host.letters` reads them."""
        for start in range(0, len(letters), CHUNK_ROWS):
            self._send({"op": "dead-letters"}, None, letters[start : start + CHUNK_ROWS], None)

    def commit(self, header: CommitHeader) -> Marker:
        """Commit what was sent; returns the marker that stands afterwards."""
        self._writer.write_metadata(pack({"op": "commit", "header": header.to_json()}))
        return Marker.from_json(unpack(self._reader.read_chunk().app_metadata)["marker"])

    def _send_all(self, message: dict[str, Any], keys: Any, values: Any, stamps: Any) -> None:
        for start in range(0, len(keys), CHUNK_ROWS):
            part = slice(start, start + CHUNK_ROWS)
            self._send(message, keys[part], values[part], stamps[part])

    def _send(self, message: dict[str, Any], keys: Any, values: Any, stamps: Any) -> None:
        rows = next(len(c) for c in (keys, values, stamps) if c is not None)
        columns = [
            pa.nulls(rows, field.type) if column is None else column.cast(field.type)
            for column, field in zip((keys, values, stamps), UP, strict=True)
        ]
        self._writer.write_with_metadata(pa.record_batch(columns, schema=UP), pack(message))
