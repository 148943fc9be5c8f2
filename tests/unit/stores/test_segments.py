from __future__ import annotations

import pytest

from state_lib.errors import ConfigurationError
from state_lib.specs import StoreSpec
from state_lib.stores.bytes_store import bytes_store
from state_lib.stores.memory import MemoryEngine
from state_lib.stores.segments import (
    is_expired_segment,
    is_live,
    segment_family,
    segment_id,
    segments_of,
    store_of,
)

SPEC = StoreSpec("w", "window", window_size_ms=10, retention_ms=200_000)


@pytest.mark.parametrize(
    ("start", "expected"), [(0, 0), (99, 0), (100, 1), (-1, -1), (-100, -1), (-101, -2)]
)
def test_ids_are_floors(start: int, expected: int) -> None:
    assert segment_id(start, 100) == expected


def test_names_lead_back_to_stores_and_sort_by_time() -> None:
    families = ["w", "w@10", "w@9", "w@-2", "w2@1", "x.w@3", "__meta__"]
    assert segments_of("w", families) == [-2, 9, 10]
    assert [store_of(f) for f in families] == ["w", "w", "w", "w", "w2", "x.w", "__meta__"]
    assert segment_family("w", -2) == "w@-2"


def test_a_window_lives_while_its_start_is_after_clock_minus_retention() -> None:
    assert is_live(1, 200_000, SPEC)
    assert not is_live(0, 200_000, SPEC)


def test_a_segment_expires_with_the_last_start_it_could_hold() -> None:
    last = SPEC.segment_interval_ms - 1
    assert is_expired_segment(0, last + 200_000, SPEC)
    assert not is_expired_segment(0, last + 199_999, SPEC)


@pytest.mark.parametrize("name", ["__meta__", "default"])
def test_reserved_names_are_refused(name: str) -> None:
    with pytest.raises(ConfigurationError, match="reserved"):
        bytes_store(StoreSpec(name), MemoryEngine("unused"))
    window = StoreSpec(name, "window", window_size_ms=1, retention_ms=1)
    with pytest.raises(ConfigurationError, match="reserved"):
        bytes_store(window, MemoryEngine("unused"))
