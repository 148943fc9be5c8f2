"""Values as JSON has them."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import pytest

from state_lib.serdes.shown import from_json, to_json

NOON = dt.datetime(2013, 1, 31, 12, tzinfo=dt.UTC)
SHOWN: list[tuple[Any, Any, Any]] = [
    ("bytes", b"\0\xff", "00ff"),
    ("date", dt.date(2013, 1, 31), "2013-01-31"),
    ("date", dt.date(1, 1, 1), "0001-01-01"),
    ("timestamp", NOON, "2013-01-31T12:00:00.000Z"),
    ("timestamp", NOON.replace(microsecond=1), "2013-01-31T12:00:00.000001Z"),
    ("timestamp_ntz", NOON.replace(tzinfo=None), "2013-01-31T12:00:00.000"),
    ("decimal(10,2)", Decimal("-3.50"), "-3.50"),
    ("decimal(38,20)", Decimal(1).scaleb(-20), "0.00000000000000000001"),
    ({"array": "date"}, [dt.date(2013, 1, 31), None], ["2013-01-31", None]),
    ({"map": ["int64", "bytes"]}, [(1, b"a"), (2, None)], {"1": "61", "2": None}),
    ({"map": ["bool", "int64"]}, [(True, 1)], {"true": 1}),
    ({"struct": [["d", "date"], ["n", "int64"]]}, {"d": None, "n": 1}, {"d": None, "n": 1}),
]


@pytest.mark.parametrize(("kind", "value", "shown"), SHOWN)
def test_they_are_shown_and_read(kind: Any, value: Any, shown: Any) -> None:
    assert to_json(kind, value) == shown
    assert from_json(kind, shown) == value
    assert to_json(kind, None) is from_json(kind, None) is None


def test_times_of_other_zones_are_utcs() -> None:
    there = NOON.astimezone(dt.timezone(dt.timedelta(hours=5)))
    assert to_json("timestamp", there) == "2013-01-31T12:00:00.000Z"
    assert from_json("timestamp", "2013-01-31T17:00+05:00") == NOON
    assert from_json("timestamp", "2013-01-31T12:00") == NOON


@pytest.mark.parametrize(
    ("kind", "shown"),
    [
        ("date", 3),
        ("date", "today"),
        ("timestamp", "12:00"),
        ("bytes", "0"),
        ("decimal(10,2)", "x"),
        ({"array": "int64"}, {}),
        ({"struct": [["a", "int64"]]}, [1]),
        ({"map": ["int64", "int64"]}, {"x": 1}),
    ],
)
def test_what_is_shown_otherwise_is_refused(kind: Any, shown: Any) -> None:
    with pytest.raises((ValueError, TypeError)):
        from_json(kind, shown)
