"""Positions: what they are equal to, their JSON, their order."""

from __future__ import annotations

import copy
import pickle

import orjson
from hypothesis import given

from state_lib.protocol.positions import Positions
from tests.support.drawn import places

HERE = Positions({("s", 1): 5, ("s", 0): 10})


def test_they_compare_as_numbers() -> None:
    assert Positions.of({"s": {"0": 10, "1": 5}, "t": {}}) == HERE
    assert HERE == {("s", 0): 10, ("s", 1): 5}
    assert Positions({("s", 0): 10}) != HERE
    assert not Positions.of({"s": {}})


def test_partitions_are_in_the_order_of_their_numbers() -> None:
    many = Positions({("t", 10): 1, ("t", 9): 2, ("s", 0): 3})
    assert orjson.dumps(many.to_json()) == b'{"s":{"0":3},"t":{"9":2,"10":1}}'
    assert f"at {many}" == "at {'s': {'0': 3}, 't': {'9': 2, '10': 1}}"


def test_they_do_not_change_with_what_they_are_made_of() -> None:
    made = dict(HERE)
    kept = Positions(made)
    made["s", 0] = 11
    assert kept == HERE


@given(places(), places())
def test_the_greatest_is_the_least_upper_bound(a: Positions, b: Positions) -> None:
    both = a.greatest(b)
    assert both.keys() == a.keys() | b.keys()
    for partition, number in both.items():
        assert number == max(a.get(partition, -1), b.get(partition, -1))


@given(places())
def test_they_travel(one: Positions) -> None:
    assert Positions.of(orjson.loads(orjson.dumps(one.to_json()))) == one
    assert pickle.loads(pickle.dumps(one)) == one  # noqa: S301 - made above
    assert copy.deepcopy(one) == one
