"""Errors and messages over Flight."""

from __future__ import annotations

import pyarrow as pa
import pytest
from pyarrow import flight

from state_lib.errors import (
    HoldfastError,
    NotFound,
    Realign,
    StoreFull,
    Superseded,
    Unauthorized,
    Unavailable,
)
from state_lib.protocol.wire import from_flight, pack, to_flight, unpack


@pytest.mark.parametrize(
    "cls", [Realign, Superseded, NotFound, StoreFull, Unavailable, Unauthorized]
)
def test_our_errors_come_back(cls: type[HoldfastError]) -> None:
    error = from_flight(to_flight(cls("why", task="a/1")), "host-1")
    assert type(error) is cls
    assert (error.message, error.details) == ("why", {"task": "a/1"})


@pytest.mark.parametrize(
    "lost", [flight.FlightUnavailableError, flight.FlightTimedOutError, flight.FlightCancelledError]
)
def test_a_host_that_is_away_is_worth_a_retry(lost: type[Exception]) -> None:
    error = from_flight(lost("gone"), "host-1 (h:1)")
    assert type(error) is Unavailable
    assert "host-1 (h:1)" in error.message


def test_foreign_errors_keep_their_words() -> None:
    error = from_flight(flight.FlightServerError("KeyError: 'op'"), "host-1")
    assert type(error) is HoldfastError
    assert "KeyError" in error.message
    denied = from_flight(flight.FlightUnauthenticatedError("no"), "host-1")
    assert type(denied) is Unauthorized


def test_messages_survive_bytes_and_buffers() -> None:
    message = {"op": "get", "n": 1 << 60, "deep": {"a": [None, True]}}
    assert unpack(pack(message)) == message
    assert unpack(pa.py_buffer(pack(message))) == message
