"""What only the memory engine does: its bound."""

from __future__ import annotations

import os
import tracemalloc
from pathlib import Path

import pytest

from state_lib.errors import ConfigurationError, StateCorrupt, StoreFull
from state_lib.stores.memory import MemoryEngine, MemoryOptions
from state_lib.stores.memory.options import ENTRY_OVERHEAD_BYTES

ENTRY = ENTRY_OVERHEAD_BYTES + 2  # one byte of key, one of value


def engine_of(entries: int) -> MemoryEngine:
    return MemoryEngine("unused", MemoryOptions(max_bytes=entries * ENTRY))


def test_a_full_store_is_refused_before_anything_is_applied() -> None:
    engine = engine_of(2)
    engine.write({"s": ([b"1", b"2"], [b"x", b"x"])})
    with pytest.raises(StoreFull) as caught:
        engine.write({"other": ([b"1"], [b"x"]), "s": ([b"1", b"3"], [b"y", b"y"])})
    assert caught.value.details == {
        "store": "s", "max_bytes": 2 * ENTRY, "needed_bytes": 3 * ENTRY
    }  # fmt: skip
    assert engine.get_many("s", [b"1", b"3"]) == [b"x", None]
    assert engine.families() == ["s"]


def test_overwrites_and_deletes_give_room_back() -> None:
    engine = engine_of(2)
    engine.write({"s": ([b"1", b"2"], [b"x", b"x"])})
    engine.write({"s": ([b"1", b"1", b"2", b"3"], [b"long value", b"y", None, b"z"])})
    assert engine.size_bytes("s") == 2 * ENTRY
    engine.write({"s": ([b"1", b"3", b"absent"], [None, None, None])})
    assert engine.size_bytes("s") == 0


def test_segments_of_a_store_share_its_bound_and_drops_free_it() -> None:
    engine = engine_of(2)
    engine.write({"w@0": ([b"1"], [b"x"]), "w@1": ([b"1"], [b"x"])})
    with pytest.raises(StoreFull, match="'w'"):
        engine.write({"w@2": ([b"1"], [b"x"])})
    engine.write({"v": ([b"1", b"2"], [b"x", b"x"])})
    engine.drop("w@0")
    engine.write({"w@2": ([b"1"], [b"x"])})


def test_a_full_store_can_still_shrink() -> None:
    engine = engine_of(1)
    engine.write({"s": ([b"1"], [b"x"])})
    engine.write({"s": ([b"1", b"2"], [None, b"x"])})
    assert engine.get_many("s", [b"1", b"2"]) == [None, b"x"]


def test_each_store_has_its_own_bound() -> None:
    engine = MemoryEngine("unused", MemoryOptions(max_bytes_of={"small": ENTRY}))
    engine.write({"big": ([b"1", b"2"], [b"x", b"x"]), "small": ([b"1"], [b"x"])})
    with pytest.raises(StoreFull, match="'small'"):
        engine.check_room({"small@3": ([b"2"], [b"x"])})
    assert engine.check_room({"big": ([b"1", b"3"], [None, b"x"])}) == {"big": 0}
    assert engine.get("big", b"3") is None


def test_bounds_must_be_positive() -> None:
    with pytest.raises(ConfigurationError, match="'s' is 0"):
        MemoryOptions(max_bytes_of={"s": 0})


def test_the_bound_is_about_real_memory() -> None:
    engine = MemoryEngine("unused", MemoryOptions(max_bytes=1 << 30))
    keys = [os.urandom(12) for _ in range(100_000)]
    tracemalloc.start()
    engine.write({"s": ([bytes([*k]) for k in keys], [bytes(20) for _ in keys])})
    real, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert 0.6 < real / engine.size_bytes("s") < 1.1


@pytest.mark.parametrize("damage", [b"", b"x" * 40])
def test_a_damaged_checkpoint_is_state_corrupt(tmp_path: Path, damage: bytes) -> None:
    engine = MemoryEngine(tmp_path / "none")
    engine.write({"s": ([b"1"], [b"x"])})
    engine.checkpoint(tmp_path / "copy")
    (tmp_path / "copy" / "s.run").write_bytes(damage)
    with pytest.raises(StateCorrupt, match=r"s\.run"):
        MemoryEngine(tmp_path / "copy")
