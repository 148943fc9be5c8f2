"""Partitions of many keys at once are those of each."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.partitions import partitions_for
from state_lib.keys import partition_for


@settings(deadline=None)
@given(st.lists(st.binary(max_size=40), max_size=30), st.integers(1, 50), st.integers(0, 3))
def test_vectorised_partitions_are_the_scalar_ones(keys: list[bytes], n: int, skip: int) -> None:
    array = pa.array(keys, pa.binary()).slice(skip)
    assert partitions_for(array, n).tolist() == [partition_for(k, n) for k in keys[skip:]]


def test_long_keys_take_the_other_path() -> None:
    keys = [b"x" * size for size in (511, 512, 513, 5000, 0, 3)]
    got = partitions_for(pa.array(keys, pa.binary()), 1000)
    assert got.tolist() == [partition_for(k, 1000) for k in keys]
