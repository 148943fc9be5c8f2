"""Stream time: a pure function of what was read before."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from state_lib.driver.stream_time import next_stream_time
from state_lib.protocol.marker import NO_TIME

A, B, C = ("t", 0), ("t", 1), ("u", 0)


def test_nothing_seen_leaves_it_where_it_is() -> None:
    assert next_stream_time(NO_TIME, {}, [A, B]) == NO_TIME


def test_the_slowest_partition_with_unread_records_decides() -> None:
    assert next_stream_time(10, {A: 500, B: 300}, [A, B]) == 300


def test_a_partition_read_to_its_end_does_not_hold_it_back() -> None:
    assert next_stream_time(10, {A: 500, B: 300}, [A]) == 500


def test_a_partition_never_read_holds_it_back() -> None:
    assert next_stream_time(10, {A: 500}, [A, C]) == 10


def test_with_nothing_unread_the_greatest_of_all_counts() -> None:
    assert next_stream_time(10, {A: 500, B: 300, C: 700}, []) == 700


@given(
    st.integers(-1, 1000),
    st.dictionaries(st.sampled_from([A, B, C]), st.integers(0, 1000)),
    st.sets(st.sampled_from([A, B, C])),
)
def test_it_never_goes_back_and_never_beyond_what_was_seen(
    previous: int, maxima: dict[tuple[str, int], int], unread: set[tuple[str, int]]
) -> None:
    reached = next_stream_time(previous, maxima, unread)
    assert reached >= previous
    assert reached == previous or reached in maxima.values()
