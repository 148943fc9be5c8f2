"""Speaks to hosts over Arrow Flight: claim, scan, and the exchange of one task and batch."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from pyarrow import flight

from state_lib.addresses import HostAddress
from state_lib.marker import CommitHeader, Marker
from state_lib.wire import MARKER_KEY, TOKEN_HEADER, UP, from_flight, pack, unpack

CHUNK_ROWS = 200_000
"""Rows per Flight message, so that no message nears the 2 GiB of a binary column."""


class FlightHostClient:
    """A connection to one host; made on first use. Not for use by several threads at once."""

    def __init__(self, address: HostAddress, token: str | None) -> None:
        self.address = address
        self._where = f"{address.id} ({address.host}:{address.flight_port})"
        headers = [] if token is None else [(TOKEN_HEADER.encode(), f"Bearer {token}".encode())]
        self._options = flight.FlightCallOptions(headers=headers)
        self._client: flight.FlightClient | None = None

    def claim(self, app: str, partition: int, epoch: int) -> Marker:
        """Take a task for the driver of an epoch.

        Raises:
            Superseded: a newer driver has it.
            Unavailable: the host cannot be reached, or the task is opening; try again.
        """
        return self._act("claim", {"app": app, "partition": partition, "epoch": epoch})

    def marker(self, app: str, partition: int) -> Marker:
        """Where a task stands."""
        return self._act("marker", {"app": app, "partition": partition})

    def scan(self, app: str, partition: int, store: str) -> tuple[Marker, Iterator[pa.RecordBatch]]:
        """A store's live entries as stored, all at the marker that comes with them."""
        ticket = flight.Ticket(pack({"app": app, "partition": partition, "store": store}))
        with self._errors():
            reader = self._connected().do_get(ticket, self._options)
            marker = Marker.from_bytes(reader.schema.metadata[MARKER_KEY])
        return marker, self._chunks(reader)

    @contextlib.contextmanager
    def exchange(self, app: str, partition: int, epoch: int, n: int) -> Iterator[Exchange]:
        """Open the exchange of one task and batch.

        Raises:
            Superseded, Unavailable, NotOwner: see `state_lib.errors`.
        """
        request = {"app": app, "partition": partition, "epoch": epoch, "n": n}
        descriptor = flight.FlightDescriptor.for_command(pack(request))
        with self._errors():
            writer, reader = self._connected().do_exchange(descriptor, self._options)
            try:
                writer.begin(UP)
                first = unpack(reader.read_chunk().app_metadata)
                yield Exchange(writer, reader, first)
            finally:
                with contextlib.suppress(flight.FlightError, pa.ArrowException):
                    writer.close()

    def close(self) -> None:
        """Drop the connection."""
        if self._client is not None:
            self._client.close()
            self._client = None

    def _act(self, name: str, body: dict[str, Any]) -> Marker:
        with self._errors():
            action = flight.Action(name, pack(body))
            result = next(iter(self._connected().do_action(action, self._options)))
            return Marker.from_json(unpack(result.body))

    def _chunks(self, reader: Any) -> Iterator[pa.RecordBatch]:
        with self._errors():
            for chunk in reader:
                yield chunk.data

    def _connected(self) -> flight.FlightClient:
        if self._client is None:
            location = f"grpc://{self.address.host}:{self.address.flight_port}"
            self._client = flight.FlightClient(location)
        return self._client

    @contextlib.contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except (flight.FlightError, OSError) as error:
            self.close()
            raise from_flight(error, self._where) from error
        except StopIteration as error:
            self.close()
            raise from_flight(error, self._where) from error


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
        if len(letters):
            self._send({"op": "dead-letters"}, None, letters, None)

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
