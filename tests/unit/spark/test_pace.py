"""Batches grow while they are quick and full, and shrink when they are slow."""

from __future__ import annotations

import pytest

from state_lib.spark.pace import FIRST, Pace

MOST = 10 * FIRST


@pytest.fixture
def pace() -> Pace:
    return Pace(MOST, 4.0)


def test_a_stream_that_catches_up_takes_more_and_more(pace: Pace) -> None:
    assert pace.size == FIRST
    assert pace.took(FIRST, 1.9)
    assert pace.size == 4 * FIRST
    assert pace.took(4 * FIRST - 3, 1.9), "Spark's rounding"
    assert pace.size == MOST
    assert not pace.took(MOST, 1.9)


def test_a_stream_at_the_head_changes_nothing(pace: Pace) -> None:
    assert not any(pace.took(rows, 0.1) for rows in (0, 1, FIRST // 2, 0))


def test_within_half_and_twice_the_target_it_stays(pace: Pace) -> None:
    assert not any(pace.took(FIRST, seconds) for seconds in (2.0, 4.0, 8.0))


def test_the_first_batch_may_be_slow_and_later_ones_may_not(pace: Pace) -> None:
    assert not pace.took(FIRST, 60.0)
    assert pace.took(FIRST, 0.5)
    assert pace.took(4 * FIRST, 8.1)
    assert pace.size == 2 * FIRST
    assert pace.took(2 * FIRST, 8.1)
    assert pace.size == FIRST
    assert not pace.took(FIRST, 8.1), "not below the first size"


def test_a_bound_below_the_first_size_holds(pace: Pace) -> None:
    pace = Pace(7, 4.0)
    assert pace.size == 7
    assert not pace.took(7, 0.1)
    assert not pace.took(7, 60.0)
