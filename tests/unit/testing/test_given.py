"""Keys and records as a test of a pipeline gives them."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import orjson
import pytest
from pyspark.sql import Row

from state_lib.declaration import Source
from state_lib.errors import InvalidRequest, SerdeError
from state_lib.testing.keys import Keys
from state_lib.testing.topics import TestInputTopic

ROUTE = {"struct": [["origin", "utf8"], ["dest", "utf8"]]}


def test_a_row_is_taken_by_its_names_and_a_tuple_by_position() -> None:
    keys = Keys(ROUTE)
    there = keys.raw({"origin": "JFK", "dest": "LAX"})
    for same in (
        ("JFK", "LAX"),
        Row("JFK", "LAX"),
        Row(origin="JFK", dest="LAX"),
        Row(dest="LAX", origin="JFK"),
        keys.shown(there),
    ):
        assert keys.raw(same) == there
    for other in (Row(orign="JFK", dest="LAX"), Row(origin="JFK"), ("JFK",), "JFK"):
        with pytest.raises(SerdeError, match="origin"):
            keys.raw(other)


def piped(value: Any) -> Any:
    got: list[bytes] = []
    source = Source("t", format="json")
    TestInputTopic(source, lambda _name, _key, body, *_: got.append(body)).pipeInput(value)
    return orjson.loads(got[0])


def test_values_are_what_outputs_show() -> None:
    day = dt.date(2013, 1, 31)
    value = {"fare": Decimal("1E+2"), "fares": [Decimal("1.50")], "day": day}
    assert piped(value) == {"fare": "100", "fares": ["1.50"], "day": "2013-01-31"}


@pytest.mark.parametrize("value", [{"x": object()}, {"x": b"a"}, {1: 2}])
def test_what_json_lacks_is_refused_by_name(value: Any) -> None:
    with pytest.raises(InvalidRequest, match=r"'t' is read as json, and .* cannot be"):
        piped(value)
