"""What key-value stores do on every engine. A backend supplies `open` and inherits all tests."""

from __future__ import annotations

import shutil
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule

from state_lib.keys import after
from state_lib.specs import StoreSpec
from state_lib.stores.bytes_store import bytes_store
from state_lib.stores.interfaces import Engine
from state_lib.stores.memory import MemoryEngine
from state_lib.stores.rocksdb import RocksDBEngine, RocksDBOptions
from state_lib.stores.selection import KeyRange
from tests.support.selected import selected

SMALL = RocksDBOptions(write_buffer_bytes=64 << 10, block_cache_bytes=8 << 20)
PLAIN = StoreSpec("plain")
TIMED = StoreSpec("timed", "timestamped-key-value")


def put(engine: Engine, spec: StoreSpec, *entries: tuple[bytes, bytes | None]) -> None:
    keys, values = [k for k, _ in entries], [v for _, v in entries]
    engine.write(bytes_store(spec, engine).changes(keys, values))


def inclusive(lo: bytes | None, hi: bytes | None, prefix: bytes = b"") -> KeyRange:
    """As routes ask for it."""
    return KeyRange(lo, None if hi is None else after(hi), prefix)


class KeyValueConformance(ABC):
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

    def test_put_get_delete(self, engine: Engine) -> None:
        store = bytes_store(PLAIN, engine)
        put(engine, PLAIN, (b"a", b"1"), (b"b", b"2"))
        assert store.get_many([b"a", b"none"]) == [b"1", None]
        put(engine, PLAIN, (b"a", None), (b"b", None))
        put(engine, PLAIN, (b"b", None))
        assert selected(PLAIN, engine, KeyRange()) == []

    def test_ranges_include_both_ends(self, engine: Engine) -> None:
        keys = [b"a", b"aa", b"b", b"ba", b"c"]
        put(engine, PLAIN, *((key, b"%d" % n) for n, key in enumerate(keys)))
        for lo, hi, expected in [
            (b"a", b"b", [0, 1, 2]),
            (b"aa", b"aa", [1]),
            (None, b"b", [0, 1, 2]),
            (b"b", None, [2, 3, 4]),
            (b"c", b"a", []),
            (None, None, [0, 1, 2, 3, 4]),
        ]:
            found = selected(PLAIN, engine, inclusive(lo, hi))
            assert [int(value) for _, value in found] == expected
        assert engine.approximate_num_entries("plain") == 5

    def test_prefix(self, engine: Engine) -> None:
        keys = [b"a", b"a\xff", b"a\xff\xff", b"b", b"\xff\xff", b"\xff\xffz"]
        put(engine, PLAIN, *((key, b"") for key in keys))
        for prefix in (b"", b"a", b"a\xff", b"\xff\xff", b"b", b"c"):
            found = selected(PLAIN, engine, KeyRange(prefix=prefix))
            assert [k for k, _ in found] == sorted(k for k in keys if k.startswith(prefix))
        within = selected(PLAIN, engine, inclusive(b"a\xff", b"b", b"a"))
        assert [k for k, _ in within] == [b"a\xff", b"a\xff\xff"]

    def test_iterators_end_with_their_context(self, engine: Engine) -> None:
        put(engine, PLAIN, (b"a", b"1"), (b"b", b"2"))
        with bytes_store(PLAIN, engine).scan() as entries:
            assert next(entries) == (b"a", b"1")
            assert engine.open_iterators == 1
        assert engine.open_iterators == 0
        assert list(entries) == []

    def test_stores_whose_names_share_bytes_are_apart(self, engine: Engine) -> None:
        other = StoreSpec("plain2")
        put(engine, PLAIN, (b"k", b"1"))
        assert bytes_store(other, engine).get_many([b"k"]) == [None]
        assert selected(other, engine, KeyRange()) == []

    def test_bytes_level(self, engine: Engine) -> None:
        store = bytes_store(TIMED, engine)
        assert store.families() == []
        engine.write(store.changes([b"b", b"a"], [b"2", b"1"]))
        assert store.families() == ["timed"]
        assert store.get_many([b"a", b"x", b"b"]) == [b"1", None, b"2"]
        with store.scan(b"a\0", None) as entries:
            assert list(entries) == [(b"b", b"2")]
        assert store.expired_families(2**62) == []
        assert store.live(b"a", 2**62)


class TestRocksDB(KeyValueConformance):
    @staticmethod
    def open(path: Path) -> Engine:
        return RocksDBEngine(path, SMALL)


class TestMemory(KeyValueConformance):
    @staticmethod
    def open(path: Path) -> Engine:
        return MemoryEngine(path)


KEY = st.text(alphabet="ab\x7f\u00ff", max_size=3).map(str.encode) | st.binary(max_size=2)


class KeyValueMachine(RuleBasedStateMachine):
    """A store against a dict."""

    def __init__(self) -> None:
        super().__init__()
        self.root = Path(tempfile.mkdtemp())
        self.model: dict[bytes, bytes] = {}
        self.engine = self.open(self.root / "db")

    def open(self, path: Path) -> Engine:
        raise NotImplementedError

    @rule(key=KEY, value=st.binary(max_size=9))
    def put(self, key: bytes, value: bytes) -> None:
        put(self.engine, TIMED, (key, value))
        self.model[key] = value

    @rule(key=KEY)
    def delete(self, key: bytes) -> None:
        put(self.engine, TIMED, (key, None))
        self.model.pop(key, None)

    @rule(keys=st.lists(KEY, max_size=4))
    def get(self, keys: list[bytes]) -> None:
        found = bytes_store(TIMED, self.engine).get_many(keys)
        assert found == [self.model.get(key) for key in keys]

    @rule(lo=st.none() | KEY, hi=st.none() | KEY)
    def range(self, lo: bytes | None, hi: bytes | None) -> None:
        got = selected(TIMED, self.engine, inclusive(lo, hi))
        assert got == self.expected(lambda k: (lo is None or k >= lo) and (hi is None or k <= hi))

    @rule(prefix=KEY)
    def prefix(self, prefix: bytes) -> None:
        got = selected(TIMED, self.engine, KeyRange(prefix=prefix))
        assert got == self.expected(lambda k: k.startswith(prefix))

    @rule()
    def continue_from_a_checkpoint(self) -> None:
        self.engine.checkpoint(self.root / "copy")
        self.engine.close()
        shutil.rmtree(self.root / "db", ignore_errors=True)
        (self.root / "copy").rename(self.root / "db")
        self.engine = self.open(self.root / "db")

    def expected(self, keep: Callable[[bytes], bool]) -> list[tuple[bytes, bytes]]:
        return sorted((k, v) for k, v in self.model.items() if keep(k))

    def teardown(self) -> None:
        assert self.engine.open_iterators == 0
        self.engine.close()
        shutil.rmtree(self.root)


class RocksDBMachine(KeyValueMachine):
    def open(self, path: Path) -> Engine:
        return RocksDBEngine(path, SMALL)


class MemoryMachine(KeyValueMachine):
    def open(self, path: Path) -> Engine:
        return MemoryEngine(path)


TestRocksDBMachine = RocksDBMachine.TestCase
TestRocksDBMachine.settings = settings(max_examples=30, stateful_step_count=25, deadline=None)
TestMemoryMachine = MemoryMachine.TestCase
TestMemoryMachine.settings = settings(max_examples=40, stateful_step_count=30, deadline=None)
