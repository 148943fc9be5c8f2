"""Batches grow while they are quick and full, and shrink when they are slow or few come."""

from __future__ import annotations

import pytest

from state_lib.config import Settings
from state_lib.driver.batch_size import BatchSize

FIRST = 50_000
MOST = 10 * FIRST


class Clock:
    """Stands until it is moved."""

    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def size(clock: Clock) -> BatchSize:
    return _size(MOST, clock)


def _size(most: int, clock: Clock) -> BatchSize:
    flags = {"max_offsets_per_trigger": most, "first_offsets_per_trigger": FIRST}
    return BatchSize(Settings.load(batch_target_s=4.0, **flags), clock)


def test_a_stream_that_catches_up_takes_more_and_more(size: BatchSize) -> None:
    assert size.records == FIRST
    assert size.took(FIRST, 1.9)
    assert size.records == 4 * FIRST
    assert size.took(4 * FIRST - 3, 1.9), "Spark's rounding"
    assert size.records == MOST
    assert not size.took(MOST, 1.9)


def test_a_stream_at_the_head_changes_nothing(size: BatchSize, clock: Clock) -> None:
    for rows in (0, 1, FIRST // 2, 0):
        clock.now += 100
        assert not size.took(rows, 0.1)
        assert not size.calmed()


def test_within_half_and_twice_the_target_it_stays(size: BatchSize) -> None:
    assert not any(size.took(FIRST, seconds) for seconds in (2.0, 4.0, 8.0))


def test_the_first_batch_may_be_slow_and_later_ones_may_not(size: BatchSize) -> None:
    assert not size.took(FIRST, 60.0)
    assert size.took(FIRST, 0.5)
    assert size.took(4 * FIRST, 8.1)
    assert size.records == 2 * FIRST
    assert size.took(2 * FIRST, 8.1)
    assert size.records == FIRST
    assert not size.took(FIRST, 8.1), "not below the first size"


def test_who_has_caught_up_begins_anew_with_small_ones(size: BatchSize, clock: Clock) -> None:
    assert size.took(FIRST, 0.5)
    clock.now += 59
    assert not size.calmed()
    assert not size.took(FIRST + 1, 0.5)
    clock.now += 59
    assert not size.took(FIRST, 0.5)
    assert not size.calmed(), "59 s since there was a large one"
    clock.now += 1
    assert size.calmed()
    assert size.records == FIRST
    assert not size.calmed()


def test_a_bound_below_the_first_size_holds(clock: Clock) -> None:
    size = _size(7, clock)
    assert size.records == 7
    assert not size.took(7, 0.1)
    assert not size.took(7, 60.0)
