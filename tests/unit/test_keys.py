from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from state_lib.errors import SerdeError
from state_lib.keys import (
    START,
    murmur2,
    output_key,
    partition_for,
    split_output_key,
    split_timestamp,
    split_timestamps,
    split_window_key,
    split_window_keys,
    stamped,
    start_of,
    window_key,
    window_keys,
)
from tests.support.stored import with_timestamp

VECTORS = {  # org.apache.kafka.common.utils.UtilsTest.testMurmur2
    b"21": -973932308,
    b"foobar": -790332482,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    b"abc": 479470107,
}
STARTS = st.integers(-(2**63), 2**63 - 1)


@pytest.mark.parametrize(("key", "expected"), VECTORS.items())
def test_murmur2_is_kafkas(key: bytes, expected: int) -> None:
    assert murmur2(key) == expected


def test_partition_clears_the_sign_bit_and_does_not_negate() -> None:
    assert partition_for(b"21", 7) == (-973932308 & 0x7FFFFFFF) % 7
    assert partition_for(b"21", 7) != 973932308 % 7


def test_null_keys_are_refused() -> None:
    keys = pa.array([b"a", None], pa.binary())
    with pytest.raises(SerdeError):
        window_keys(keys, np.zeros(2, np.int64))


def test_window_key_bytes() -> None:
    assert window_key(b"k", 1, 2) == b"k" + bytes(7) + b"\1" + bytes(3) + b"\2"
    assert window_key(b"", -1) == b"\xff" * 8 + bytes(4)


@settings(deadline=None)
@given(st.binary(max_size=20), STARTS, st.integers(0, 2**31 - 1))
def test_window_key_round_trip(key: bytes, start: int, seq: int) -> None:
    assert split_window_key(window_key(key, start, seq)) == (key, start, seq)


@settings(deadline=None)
@given(st.lists(st.tuples(st.binary(max_size=20), STARTS), max_size=30), st.integers(0, 3))
def test_vectorised_window_keys(rows: list[tuple[bytes, int]], skip: int) -> None:
    array = pa.array([key for key, _ in rows], pa.binary()).slice(skip)
    starts = np.array([start for _, start in rows], np.int64)[skip:]
    composites = window_keys(array, starts)
    assert composites.to_pylist() == [window_key(k, s) for k, s in rows[skip:]]


def test_what_is_too_short_is_named() -> None:
    with pytest.raises(SerdeError, match="at least 12 bytes, not 11"):
        split_window_key(bytes(11))


def test_keys_and_starts_must_be_as_many() -> None:
    with pytest.raises(SerdeError, match="2 keys with 1 starts"):
        window_keys(pa.array([b"a", b"b"]), np.zeros(1, np.int64))


@given(st.lists(st.tuples(st.binary(max_size=9), STARTS), max_size=20), st.integers(0, 3))
def test_columns_of_window_keys_are_split_as_each_of_them(
    windows: list[tuple[bytes, int]], skip: int
) -> None:
    composite = pa.array([window_key(k, s, 7) for k, s in windows], pa.binary()).slice(skip)
    keys, starts = split_window_keys(composite)
    found = list(zip(keys.to_pylist(), starts.tolist(), strict=True))
    assert found == [split_window_key(k.as_py())[:2] for k in composite]


def test_a_column_with_something_that_is_no_window_key_is_refused() -> None:
    with pytest.raises(SerdeError, match="at least 12 bytes, not 3"):
        split_window_keys(pa.array([window_key(b"", 1), b"abc"], pa.binary()))


@given(st.binary(max_size=9), STARTS)
def test_a_start_is_found_where_it_lies(key: bytes, start: int) -> None:
    composite = window_key(key, start, 7)
    assert start_of(composite[START]) == start
    assert split_output_key(output_key(composite)) == (key, start)
    with pytest.raises(SerdeError, match="at least 8 bytes, not 7"):
        split_output_key(bytes(7))


STORED = st.none() | st.tuples(st.binary(max_size=9), STARTS)


@given(st.lists(STORED, max_size=20), st.integers(0, 3))
def test_stamps_are_the_same_one_by_one_and_in_columns(
    rows: list[tuple[bytes, int] | None], skip: int
) -> None:
    """Whatever is null, and wherever the column begins."""
    values = [None if row is None else row[0] for row in rows]
    times = [0 if row is None else row[1] for row in rows]
    stored = stamped(times, values)
    assert stored == [None if row is None else with_timestamp(*row) for row in rows]
    assert [None if one is None else split_timestamp(one) for one in stored] == rows
    column = pa.array(stored, pa.binary()).slice(skip)
    found, stamps = split_timestamps(column, nothing=-5)
    assert found.to_pylist() == values[skip:]
    assert stamps.tolist() == [-5 if row is None else row[1] for row in rows[skip:]]
    again = pa.concat_arrays([found, found]).to_pylist()  # its buffers are whole
    assert again == values[skip:] * 2


def test_a_stored_value_without_a_stamp_is_refused() -> None:
    with pytest.raises(SerdeError, match="at least 8 bytes, not 3"):
        split_timestamp(b"abc")
    with pytest.raises(SerdeError, match="at least 8 bytes, not 3"):
        split_timestamps(pa.array([None, bytes(8), b"abc"], pa.binary()))
    with pytest.raises(ValueError, match="zip"):
        stamped([1], [])
