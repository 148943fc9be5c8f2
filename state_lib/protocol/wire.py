"""What executors and hosts exchange over Arrow Flight: schemas, operations, errors."""

from __future__ import annotations

from typing import Any

import orjson
import pyarrow as pa
from pyarrow import flight

from state_lib.errors import HoldfastError, Unauthorized, Unavailable, from_wire

UP = pa.schema([("key", pa.binary()), ("value", pa.binary()), ("timestamp", pa.int64())])
"""Executor to host: keys to read, changes, output records. Timestamps in ms."""
DOWN = pa.schema([("value", pa.binary())])
"""Host to executor: stored values in the order of the keys asked for; null where absent."""
SCAN = pa.schema([("key", pa.binary()), ("value", pa.binary())])
"""A store's live entries as stored."""
MARKER_KEY = b"holdfast-marker"
"""Schema metadata of a scan: the marker that the entries stand at."""
TOKEN_HEADER = "authorization"  # noqa: S105 - a header's name


ALIVE = {"event": "alive"}
"""The first message of a stream of events, sent again after `BEAT_S` without any other."""
BEAT_S = 5.0


def pack(message: dict[str, Any]) -> bytes:
    """Metadata beside a record batch, commands and action bodies."""
    return orjson.dumps(message, option=orjson.OPT_NON_STR_KEYS)


def unpack(raw: Any) -> dict[str, Any]:
    """The inverse of `pack`; takes bytes or a pyarrow buffer."""
    body: dict[str, Any] = orjson.loads(raw if isinstance(raw, bytes) else raw.to_pybytes())
    return body


def to_flight(error: HoldfastError) -> Exception:
    """An error as Flight carries it: the class in ``extra_info``."""
    kind: type[Exception] = flight.FlightServerError
    if isinstance(error, Unauthorized):
        kind = flight.FlightUnauthenticatedError
    if isinstance(error, Unavailable):
        kind = flight.FlightUnavailableError
    return kind(error.message, pack(error.to_wire()))


def from_flight(error: Exception, where: str) -> HoldfastError:
    """The error that a host raised, or `Unavailable` if the host itself could not be reached."""
    extra = getattr(error, "extra_info", None)
    if extra:
        return from_wire(unpack(extra))
    if isinstance(error, flight.FlightUnauthenticatedError):
        return Unauthorized(f"host {where} refused the token: {error}", host=where)
    if isinstance(
        error,
        flight.FlightUnavailableError | flight.FlightTimedOutError | flight.FlightCancelledError,
    ):
        return Unavailable(
            f"host {where} cannot be reached ({error}): see 'holdfast status'", host=where
        )
    return HoldfastError(f"host {where} failed: {error}", host=where)
