"""What window stores do on every engine. A backend supplies `open` and inherits all tests."""

from __future__ import annotations

import shutil
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule

from state_lib.errors import SerdeError
from state_lib.keys import split_window_key, window_key
from state_lib.specs import StoreSpec
from state_lib.stores.bytes_store import bytes_store
from state_lib.stores.interfaces import Engine
from state_lib.stores.memory import MemoryEngine
from state_lib.stores.rocksdb import RocksDBEngine, RocksDBOptions
from state_lib.stores.selection import WindowRange
from state_lib.task.reads import live_values
from tests.support.selected import selected

SMALL = RocksDBOptions(write_buffer_bytes=64 << 10, block_cache_bytes=8 << 20)
MIN = 60_000
SPEC = StoreSpec("w", "window", window_size_ms=MIN, retention_ms=4 * MIN)  # segments of two minutes
LONG_AGO = -(2**60)


def put(engine: Engine, *entries: tuple[bytes, int, bytes | None]) -> None:
    """Key, start and value; None deletes."""
    keys = [window_key(key, start) for key, start, _ in entries]
    engine.write(bytes_store(SPEC, engine).changes(keys, [value for *_, value in entries]))


def fetch(engine: Engine, key: bytes, start: int, clock: int = 0) -> bytes | None:
    (value,) = live_values(bytes_store(SPEC, engine), [window_key(key, start)], clock)
    return value


def windows(
    engine: Engine, selection: WindowRange, clock: int = 0
) -> list[tuple[bytes, int, bytes]]:
    """Key, start and value of what a query would find."""
    return [
        (*split_window_key(key)[:2], value)
        for key, value in selected(SPEC, engine, selection, clock)
    ]


class WindowConformance(ABC):
    @staticmethod
    @abstractmethod
    def open(path: Path) -> Engine: ...

    @pytest.fixture
    def engine(self, tmp_path: Path) -> Iterator[Engine]:
        engine = self.open(tmp_path / "db")
        yield engine
        leaked = engine.open_iterators
        engine.close()
        assert leaked == 0

    def test_put_fetch_delete(self, engine: Engine) -> None:
        put(engine, (b"k", MIN, b"7"))
        assert fetch(engine, b"k", MIN) == b"7"
        assert fetch(engine, b"k", MIN + 1) is None
        assert engine.get("w@0", window_key(b"k", MIN)) == b"7"
        put(engine, (b"k", MIN, None))
        put(engine, (b"k", MIN, None))
        assert fetch(engine, b"k", MIN) is None

    def test_exact_binary_keys(self, engine: Engine) -> None:
        """After Kafka's ``shouldFetchAndIterateOverExactBinaryKeys``."""
        keys = [b"", b"\0", b"\0\0", b"\0" * 8, b"\0" * 9, b"\0" * 12, b"\0\1", b"k", b"k\0", b"kk"]
        keys.append(b"k" + MIN.to_bytes(8, "big"))
        for n, key in enumerate(keys):
            put(engine, *((key, start, b"%d" % n) for start in (0, 1, MIN)))
        for n, key in enumerate(keys):
            found = windows(engine, WindowRange(0, MIN, key=key))
            assert found == [(key, s, b"%d" % n) for s in (0, 1, MIN)]

    def test_ranges_cross_segments_and_1970_in_order(self, engine: Engine) -> None:
        starts = [-5 * MIN, -1, 0, 1, 2 * MIN - 1, 2 * MIN, 9 * MIN]
        for start in reversed(starts):
            put(engine, (b"k", start, b""), (b"other", start, b""))
        assert len(engine.families()) == 5
        for low, high in [(-5 * MIN, 9 * MIN), (-1, 1), (0, 0), (1, 2 * MIN), (5, 4), (3, 9)]:
            found = windows(engine, WindowRange(low, high, key=b"k"), LONG_AGO)
            assert [s for _, s, _ in found] == [s for s in starts if low <= s <= high]

    def test_all_is_by_segment_then_key(self, engine: Engine) -> None:
        everything = [(b"a", 1), (b"b", 0), (b"a", 3 * MIN), (b"b", 3 * MIN)]
        put(engine, *((key, start, b"") for key, start in reversed(everything)))

        def found(selection: WindowRange) -> list[tuple[bytes, int]]:
            return [(key, start) for key, start, _ in windows(engine, selection)]

        assert found(WindowRange()) == everything
        assert found(WindowRange(1, 3 * MIN - 1)) == [(b"a", 1)]
        assert found(WindowRange(first=2)) == everything[2:]
        assert found(WindowRange(prefix=b"b")) == [everything[1], everything[3]]

    def test_expired_windows_never_show(self, engine: Engine) -> None:
        put(engine, *((b"k", start, b"") for start in (0, 1, MIN)))
        clock = 4 * MIN
        assert fetch(engine, b"k", 0, clock) is None  # start <= clock - retention
        assert fetch(engine, b"k", 1, clock) is not None
        of_key = windows(engine, WindowRange(0, MIN, key=b"k"), clock)
        assert [start for _, start, _ in of_key] == [1, MIN]
        assert [start for _, start, _ in windows(engine, WindowRange(), clock + 1)] == [MIN]
        put(engine, (b"k", 0, b"late"))
        assert fetch(engine, b"k", 0, clock) is None

    def test_bytes_level_routes_by_segment(self, engine: Engine) -> None:
        store = bytes_store(SPEC, engine)
        keys = [window_key(b"a", s) for s in (5 * MIN, -1, 0, MIN, 5 * MIN + 1)]
        changes = store.changes(keys, [b"0", b"1", b"2", None, b"4"])
        assert changes == {
            "w@2": ([keys[0], keys[4]], [b"0", b"4"]),
            "w@-1": ([keys[1]], [b"1"]),
            "w@0": ([keys[2], keys[3]], [b"2", None]),
        }
        engine.write(changes)
        assert store.families() == ["w@-1", "w@0", "w@2"]
        assert store.get_many(keys) == [b"0", b"1", b"2", None, b"4"]
        assert store.get_many(keys[2:3]) == [b"2"]
        assert store.get_many([]) == []
        assert store.changes([], []) == {}
        with store.scan() as entries:
            assert [v for _, v in entries] == [b"1", b"2", b"0", b"4"]
            assert engine.open_iterators == 3
        assert engine.open_iterators == 0

    def test_segments_expire_when_their_last_window_does(self, engine: Engine) -> None:
        store = bytes_store(SPEC, engine)
        keys = [window_key(b"a", s) for s in (-1, 0, 2 * MIN)]
        engine.write(store.changes(keys, [b""] * 3))
        last = 2 * MIN - 1
        assert store.expired_families(last + 4 * MIN - 1) == ["w@-1"]
        assert store.live(window_key(b"", last), last + 4 * MIN - 1)
        assert store.expired_families(last + 4 * MIN) == ["w@-1", "w@0"]
        assert not store.live(window_key(b"", last), last + 4 * MIN)

    @pytest.mark.parametrize("key", [b"", bytes(11)])
    def test_a_key_without_its_suffix_is_refused(self, engine: Engine, key: bytes) -> None:
        store = bytes_store(SPEC, engine)
        with pytest.raises(SerdeError, match="'w'"):
            store.changes([key], [b""])
        with pytest.raises(SerdeError, match="'w'"):
            store.get_many([key])

    def test_stores_whose_names_share_bytes_are_apart(self, engine: Engine) -> None:
        other = StoreSpec("w2", "window", window_size_ms=MIN, retention_ms=4 * MIN)
        engine.write(bytes_store(other, engine).changes([window_key(b"a", 0)], [b""]))
        engine.create("w")
        engine.create("x-w@0")
        assert bytes_store(SPEC, engine).families() == []


class TestRocksDB(WindowConformance):
    @staticmethod
    def open(path: Path) -> Engine:
        return RocksDBEngine(path, SMALL)


class TestMemory(WindowConformance):
    @staticmethod
    def open(path: Path) -> Engine:
        return MemoryEngine(path)


KEY = st.sampled_from([b"", b"\0", b"k", b"k\0", b"k" + bytes(8), b"k" + bytes(12), b"\xff" * 9])
START = st.integers(-6, 6).map(lambda n: n * MIN // 2)


class WindowMachine(RuleBasedStateMachine):
    """A window store against a dict, with a clock that moves and segments that are collected."""

    def __init__(self) -> None:
        super().__init__()
        self.root = Path(tempfile.mkdtemp())
        self.model: dict[tuple[bytes, int], bytes] = {}
        self.clock = -4 * MIN
        self.engine = self.open(self.root / "db")

    def open(self, path: Path) -> Engine:
        raise NotImplementedError

    @rule(key=KEY, start=START, value=st.binary(max_size=9))
    def put(self, key: bytes, start: int, value: bytes) -> None:
        put(self.engine, (key, start, value))
        self.model[key, start] = value

    @rule(key=KEY, start=START)
    def delete(self, key: bytes, start: int) -> None:
        put(self.engine, (key, start, None))
        self.model.pop((key, start), None)

    @rule(ms=st.integers(0, 2 * MIN))
    def time_passes(self, ms: int) -> None:
        self.clock += ms

    @rule()
    def collect(self) -> None:
        for family in bytes_store(SPEC, self.engine).expired_families(self.clock):
            self.engine.drop(family)

    @rule(key=KEY, start=START)
    def fetch(self, key: bytes, start: int) -> None:
        assert fetch(self.engine, key, start, self.clock) == self.live().get((key, start))

    @rule(key=KEY, low=START, high=START)
    def fetch_range(self, key: bytes, low: int, high: int) -> None:
        got = windows(self.engine, WindowRange(low, high, key=key), self.clock)
        expected = [(k, s, v) for (k, s), v in self.live().items() if k == key and low <= s <= high]
        assert got == sorted(expected)

    @rule(low=START, high=START, prefix=KEY)
    def fetch_all(self, low: int, high: int, prefix: bytes) -> None:
        got = windows(self.engine, WindowRange(low, high, prefix=prefix), self.clock)
        assert sorted(got) == sorted(
            (k, s, v)
            for (k, s), v in self.live().items()
            if low <= s <= high and k.startswith(prefix)
        )

    @rule()
    def continue_from_a_checkpoint(self) -> None:
        self.engine.checkpoint(self.root / "copy")
        self.engine.close()
        shutil.rmtree(self.root / "db", ignore_errors=True)
        (self.root / "copy").rename(self.root / "db")
        self.engine = self.open(self.root / "db")

    def live(self) -> dict[tuple[bytes, int], bytes]:
        oldest = self.clock - SPEC.retention_ms
        return {(k, s): v for (k, s), v in self.model.items() if s > oldest}

    def teardown(self) -> None:
        assert self.engine.open_iterators == 0
        self.engine.close()
        shutil.rmtree(self.root)


class RocksDBMachine(WindowMachine):
    def open(self, path: Path) -> Engine:
        return RocksDBEngine(path, SMALL)


class MemoryMachine(WindowMachine):
    def open(self, path: Path) -> Engine:
        return MemoryEngine(path)


TestRocksDBMachine = RocksDBMachine.TestCase
TestRocksDBMachine.settings = settings(max_examples=30, stateful_step_count=25, deadline=None)
TestMemoryMachine = MemoryMachine.TestCase
TestMemoryMachine.settings = settings(max_examples=50, stateful_step_count=30, deadline=None)
