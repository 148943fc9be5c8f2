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

from state_lib.errors import InvalidRequest, SerdeError
from state_lib.keys import window_key
from state_lib.specs import StoreSpec
from state_lib.stores.bytes_store import bytes_store
from state_lib.stores.interfaces import Engine, ValueAndTimestamp, Windowed
from state_lib.stores.memory import MemoryEngine
from state_lib.stores.rocksdb import RocksDBEngine, RocksDBOptions
from state_lib.stores.window import read_only_window_store, window_store

SMALL = RocksDBOptions(write_buffer_bytes=64 << 10, block_cache_bytes=8 << 20)
MIN = 60_000
SPEC = StoreSpec(
    "w", "window", key_serde="bytes", value_serde="int64", window_size_ms=MIN, retention_ms=4 * MIN
)  # segments of two minutes
LONG_AGO = -(2**60)


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
        store = window_store(SPEC, engine, lambda: 0)
        store.put(b"k", MIN, 7, 61_000)
        assert store.fetch(b"k", MIN) == ValueAndTimestamp(7, 61_000)
        assert store.fetch(b"k", MIN + 1) is None
        assert engine.get("w@0", window_key(b"k", MIN)) == (
            (61_000).to_bytes(8, "big") + (7).to_bytes(8, "big")
        )
        store.put(b"k", MIN, None, 0)
        store.delete(b"k", MIN)
        assert store.fetch(b"k", MIN) is None

    def test_exact_binary_keys(self, engine: Engine) -> None:
        """After Kafka's ``shouldFetchAndIterateOverExactBinaryKeys``."""
        store = window_store(SPEC, engine, lambda: 0)
        keys = [b"", b"\0", b"\0\0", b"\0" * 8, b"\0" * 9, b"\0" * 12, b"\0\1", b"k", b"k\0", b"kk"]
        keys.append(b"k" + MIN.to_bytes(8, "big"))
        for n, key in enumerate(keys):
            for start in (0, 1, MIN):
                store.put(key, start, n, start)
        for n, key in enumerate(keys):
            with store.fetch_range(key, 0, MIN) as rows:
                assert list(rows) == [(s, ValueAndTimestamp(n, s)) for s in (0, 1, MIN)]

    def test_ranges_cross_segments_and_1970_in_order(self, engine: Engine) -> None:
        store = window_store(SPEC, engine, lambda: LONG_AGO)
        starts = [-5 * MIN, -1, 0, 1, 2 * MIN - 1, 2 * MIN, 9 * MIN]
        for start in reversed(starts):
            store.put(b"k", start, 1, start)
            store.put(b"other", start, 1, start)
        assert len(engine.families()) == 5
        for low, high in [(-5 * MIN, 9 * MIN), (-1, 1), (0, 0), (1, 2 * MIN), (5, 4), (3, 9)]:
            with store.fetch_range(b"k", low, high) as rows:
                assert [s for s, _ in rows] == [s for s in starts if low <= s <= high]

    def test_all_is_by_segment_then_key(self, engine: Engine) -> None:
        store = window_store(SPEC, engine, lambda: 0)
        for key, start in [(b"a", 3 * MIN), (b"b", 0), (b"a", 1), (b"b", 3 * MIN)]:
            store.put(key, start, 1, 0)
        everything = [(b"a", 1), (b"b", 0), (b"a", 3 * MIN), (b"b", 3 * MIN)]
        with store.all() as rows:
            assert [tuple(window) for window, _ in rows] == everything
        with store.all(1, 3 * MIN - 1) as rows:
            assert [window for window, _ in rows] == [Windowed(b"a", 1)]
        with store.all(start_from=2) as rows:
            assert [tuple(window) for window, _ in rows] == everything[2:]

    def test_expired_windows_never_show(self, engine: Engine) -> None:
        clock = [4 * MIN]
        store = window_store(SPEC, engine, lambda: clock[0])
        for start in (0, 1, MIN):
            store.put(b"k", start, start, 0)
        assert store.fetch(b"k", 0) is None  # start <= clock - retention
        assert store.fetch(b"k", 1) is not None
        with store.fetch_range(b"k", 0, MIN) as rows:
            assert [s for s, _ in rows] == [1, MIN]
        clock[0] += 1
        with store.all() as rows:
            assert [window.start for window, _ in rows] == [MIN]
        store.put(b"k", 0, 1, 0)
        assert store.fetch(b"k", 0) is None

    def test_queries_get_a_view_that_cannot_write(self, engine: Engine) -> None:
        view = read_only_window_store(SPEC, engine, lambda: 0)
        assert view.fetch(b"k", 0) is None
        assert not hasattr(view, "put")
        assert not hasattr(view, "delete")

    def test_iterators_end_with_their_context(self, engine: Engine) -> None:
        store = window_store(SPEC, engine, lambda: 0)
        store.put(b"k", 0, 1, 0)
        store.put(b"k", 3 * MIN, 1, 0)
        with store.fetch_range(b"k", 0, 3 * MIN) as one, store.all() as everything:
            next(one)
            next(everything)
            assert engine.open_iterators > 0
        assert engine.open_iterators == 0
        assert (list(one), list(everything)) == ([], [])

    def test_a_key_value_store_is_refused(self, engine: Engine) -> None:
        with pytest.raises(InvalidRequest, match="key-value"):
            read_only_window_store(StoreSpec("kv"), engine, lambda: 0)

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
        self.model: dict[tuple[bytes, int], ValueAndTimestamp] = {}
        self.clock = -4 * MIN
        self.engine = self.open(self.root / "db")
        self.store = window_store(SPEC, self.engine, lambda: self.clock)

    def open(self, path: Path) -> Engine:
        raise NotImplementedError

    @rule(key=KEY, start=START, value=st.integers(0, 9))
    def put(self, key: bytes, start: int, value: int) -> None:
        self.store.put(key, start, value, start + 1)
        self.model[key, start] = ValueAndTimestamp(value, start + 1)

    @rule(key=KEY, start=START)
    def delete(self, key: bytes, start: int) -> None:
        self.store.delete(key, start)
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
        assert self.store.fetch(key, start) == self.live().get((key, start))

    @rule(key=KEY, low=START, high=START)
    def fetch_range(self, key: bytes, low: int, high: int) -> None:
        with self.store.fetch_range(key, low, high) as rows:
            got = list(rows)
        expected = {s: v for (k, s), v in self.live().items() if k == key and low <= s <= high}
        assert got == sorted(expected.items())

    @rule(low=st.none() | START, high=st.none() | START)
    def fetch_all(self, low: int | None, high: int | None) -> None:
        with self.store.all(low, high) as rows:
            got = list(rows)
        expected = {
            (k, s): v
            for (k, s), v in self.live().items()
            if (low is None or s >= low) and (high is None or s <= high)
        }
        assert {(w.key, w.start): v for w, v in got} == expected
        assert len(got) == len(expected)

    @rule()
    def continue_from_a_checkpoint(self) -> None:
        self.engine.checkpoint(self.root / "copy")
        self.engine.close()
        shutil.rmtree(self.root / "db", ignore_errors=True)
        (self.root / "copy").rename(self.root / "db")
        self.engine = self.open(self.root / "db")
        self.store = window_store(SPEC, self.engine, lambda: self.clock)

    def live(self) -> dict[tuple[bytes, int], ValueAndTimestamp]:
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
