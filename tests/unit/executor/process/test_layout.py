"""Keys of a processor's stores: they sort as they are gone through, and come back as they were."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from state_lib.executor.process import layout

times = st.integers(layout.MIN_MS, layout.MAX_MS)
numbers = st.integers(0, 2**64 - 1)
keys = st.binary(max_size=6)
states = st.sampled_from(["seen", "s", "täglich"])


@given(st.lists(st.tuples(times, keys)))
def test_timers_sort_by_expiry_then_key(timers: list[tuple[int, bytes]]) -> None:
    made = sorted(layout.timer(*one) for one in timers)
    assert [layout.split_timer(raw) for raw in made] == sorted(timers)


@given(keys, st.lists(times))
def test_timers_of_a_key_sort_by_expiry(key: bytes, expiries: list[int]) -> None:
    made = sorted(layout.timer_of(key, at) for at in expiries)
    assert [layout.expiry_of(raw) for raw in made] == sorted(expiries)


@given(keys, st.lists(numbers))
def test_elements_sort_by_number(key: bytes, given_numbers: list[int]) -> None:
    made = sorted(layout.element(key, number) for number in given_numbers)
    assert [layout.number_of(raw) for raw in made] == sorted(given_numbers)


@given(keys, keys, st.binary(max_size=12))
def test_no_key_holds_entries_of_another(mine: bytes, other: bytes, rest: bytes) -> None:
    lower, upper = layout.within(layout.prefixed(mine))
    entry = layout.prefixed(other) + rest
    inside = lower <= entry and (upper is None or entry < upper)
    assert inside == (mine == other)
    assert layout.split(entry) == (other, rest)


@given(times, states, keys)
def test_expiries_come_back(at: int, state: str, entry: bytes) -> None:
    assert layout.split_expiring(layout.expiring(at, state, entry)) == (at, state, entry)


@given(numbers, numbers)
def test_ends_come_back(first: int, following: int) -> None:
    assert layout.unpack_ends(layout.pack_ends(first, following)) == (first, following)


def test_a_list_that_is_not_there_has_no_elements() -> None:
    assert layout.unpack_ends(None) == (0, 0)


def test_a_time_may_be_numpys() -> None:
    """As pandas gives it: ``frame["at"].max() + HOUR``."""
    assert layout.timer(np.int64(5), b"a") == layout.timer(5, b"a")
    assert layout.timer_of(b"a", np.int32(-5)) == layout.timer_of(b"a", -5)


@pytest.mark.parametrize(
    "seen", [2**63, -(2**63) - 1, 1.5, None, True, np.float64(1), np.True_, "1"]
)
def test_a_time_has_64_bits(seen: object) -> None:
    with pytest.raises(ValueError, match="64 bits"):
        layout.ordered(seen)  # type: ignore[arg-type]


def test_kinds_of_entries_of_timers_do_not_meet() -> None:
    key, state = b"\xff" * 9, "s"
    sections = [
        layout.timer(layout.MAX_MS, key),
        layout.timer_of(key, layout.MAX_MS),
        layout.expiring(layout.MAX_MS, state, key),
        layout.ends_key(state, key),
    ]
    for at, prefix in enumerate([layout.BY_TIME, layout.BY_KEY, layout.EXPIRIES, layout.ENDS]):
        lower, upper = layout.within(prefix)
        found = [lower <= raw and (upper is None or raw < upper) for raw in sections]
        assert found == [i == at for i in range(4)]
