"""Values as JSON has them."""

from __future__ import annotations

import datetime as dt
import math
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
    (
        {"map": ["float64", "bool"]},
        [(0.5, True), (math.inf, None)],
        {"0.5": True, "Infinity": None},
    ),
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
        ("decimal(10,2)", "120.505"),
        ("decimal(10,2)", "0.009"),
        ("decimal(10,2)", "NaN"),
        ({"array": "int64"}, {}),
        ({"struct": [["a", "int64"]]}, [1]),
        ({"map": ["int64", "int64"]}, {"x": 1}),
    ],
)
def test_what_is_shown_otherwise_is_refused(kind: Any, shown: Any) -> None:
    with pytest.raises((ValueError, TypeError)):
        from_json(kind, shown)


def test_numbers_that_json_lacks_are_keys_of_their_own() -> None:
    kind = {"map": ["float64", "int64"]}
    shown = to_json(kind, [(math.nan, 1), (math.inf, 2), (-math.inf, 3)])
    assert shown == {"NaN": 1, "Infinity": 2, "-Infinity": 3}
    (nan, *others) = from_json(kind, shown)
    assert math.isnan(nan[0])
    assert others == [(math.inf, 2), (-math.inf, 3)]


def test_a_decimal_may_be_written_with_fewer_digits_or_zeros() -> None:
    for text in ("120.5", "120.50", "120.500", "1.205E2"):
        assert str(from_json("decimal(10,2)", text)) == "120.50"


ROUTE = {"struct": [["origin", "utf8"], ["at", "timestamp"]]}


@pytest.mark.parametrize(
    ("kind", "value", "said"),
    [
        (ROUTE, {"orign": "JFK"}, r"\['orign'\] are none of \['origin', 'at'\]"),
        (ROUTE, "origin", r"no mapping with \['origin', 'at'\]"),
        (ROUTE, ["origin", "at"], "no mapping"),
        (ROUTE, {"at": NOON.replace(tzinfo=None)}, "no time zone"),
        ("timestamp", NOON.replace(tzinfo=None), "no time zone"),
        ({"array": ROUTE}, [{"origin": "JFK", "dest": "LAX"}], "'dest'"),
    ],
)
def test_what_is_of_another_kind_is_not_shown(kind: Any, value: Any, said: str) -> None:
    with pytest.raises((ValueError, TypeError), match=said):
        to_json(kind, value)


def test_of_a_struct_some_may_be_shown() -> None:
    assert to_json(ROUTE, {"at": NOON}) == {"at": "2013-01-31T12:00:00.000Z"}
