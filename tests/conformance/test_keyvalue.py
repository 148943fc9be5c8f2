"""What key-value stores do on every engine. A backend supplies `open` and inherits all tests."""

from __future__ import annotations

import shutil
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule

from state_lib.errors import InvalidRequest, SerdeError
from state_lib.specs import StoreSpec
from state_lib.stores.bytes_store import bytes_store
from state_lib.stores.interfaces import Engine, ValueAndTimestamp
from state_lib.stores.keyvalue import key_value_store, read_only_key_value_store
from state_lib.stores.memory import MemoryEngine
from state_lib.stores.rocksdb import RocksDBEngine, RocksDBOptions

SMALL = RocksDBOptions(write_buffer_bytes=64 << 10, block_cache_bytes=8 << 20)
PLAIN = StoreSpec("plain", "key-value", key_serde="utf8", value_serde="int64")
TIMED = StoreSpec("timed", "timestamped-key-value", key_serde="utf8", value_serde="json")


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
        store = key_value_store(PLAIN, engine)
        store.put("a", 1)
        store.put("b", 2)
        assert (store.get("a"), store.get("none")) == (1, None)
        store.put("a", None)
        store.delete("b")
        store.delete("b")
        with store.all() as entries:
            assert list(entries) == []

    def test_ranges_include_both_ends(self, engine: Engine) -> None:
        store = key_value_store(PLAIN, engine)
        for n, key in enumerate(["a", "aa", "b", "ba", "c"]):
            store.put(key, n)
        for lo, hi, expected in [
            ("a", "b", [0, 1, 2]),
            ("aa", "aa", [1]),
            (None, "b", [0, 1, 2]),
            ("b", None, [2, 3, 4]),
            ("c", "a", []),
            (None, None, [0, 1, 2, 3, 4]),
        ]:
            with store.range(lo, hi) as entries:
                assert [value for _, value in entries] == expected
        assert store.approximate_num_entries() == 5

    def test_prefix(self, engine: Engine) -> None:
        spec = StoreSpec("raw", key_serde="bytes", value_serde="bytes")
        store = key_value_store(spec, engine)
        keys = [b"a", b"a\xff", b"a\xff\xff", b"b", b"\xff\xff", b"\xff\xffz"]
        for key in keys:
            store.put(key, b"")
        for prefix in (b"", b"a", b"a\xff", b"\xff\xff", b"b", b"c"):
            with store.prefix(prefix) as entries:
                assert [k for k, _ in entries] == sorted(k for k in keys if k.startswith(prefix))
        text = key_value_store(PLAIN, engine)
        text.put("ab", 1)
        with text.prefix("a") as typed, text.prefix(b"ab") as raw:
            assert list(typed) == list(raw) == [("ab", 1)]

    def test_timestamps_are_kept_in_front_of_the_value(self, engine: Engine) -> None:
        store = key_value_store(TIMED, engine)
        store.put("a", {"n": 1}, 258)
        store.put("before 1970", [], -1)
        assert store.get("a") == ValueAndTimestamp({"n": 1}, 258)
        assert engine.get("timed", b"a") == bytes(6) + b"\1\2" + b'{"n":1}'
        with store.all() as entries:
            assert dict(entries)["before 1970"] == ValueAndTimestamp([], -1)

    def test_a_stored_value_without_its_timestamp_is_named(self, engine: Engine) -> None:
        engine.write({"timed": ([b"a"], [b"short"])})
        with pytest.raises(SerdeError, match="at least 8 bytes, not 5"):
            key_value_store(TIMED, engine).get("a")

    def test_queries_get_a_view_that_cannot_write(self, engine: Engine) -> None:
        key_value_store(PLAIN, engine).put("a", 1)
        view = read_only_key_value_store(PLAIN, engine)
        assert view.get("a") == 1
        assert not hasattr(view, "put")
        assert not hasattr(view, "delete")

    def test_iterators_end_with_their_context(self, engine: Engine) -> None:
        store = key_value_store(PLAIN, engine)
        store.put("a", 1)
        store.put("b", 2)
        with store.all() as entries:
            assert next(entries) == ("a", 1)
            assert engine.open_iterators == 1
        assert engine.open_iterators == 0
        assert list(entries) == []

    def test_stores_whose_names_share_bytes_are_apart(self, engine: Engine) -> None:
        one = key_value_store(PLAIN, engine)
        other = key_value_store(StoreSpec("plain2", key_serde="utf8", value_serde="int64"), engine)
        one.put("k", 1)
        assert other.get("k") is None
        with other.all() as entries:
            assert list(entries) == []

    def test_a_window_store_is_refused(self, engine: Engine) -> None:
        spec = StoreSpec("w", "window", window_size_ms=1, retention_ms=1)
        with pytest.raises(InvalidRequest, match="'w' is a window store"):
            read_only_key_value_store(spec, engine)

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


KEY = st.text(alphabet="ab\x7f\u00ff", max_size=3)


class KeyValueMachine(RuleBasedStateMachine):
    """A timestamped store against a dict; serialized keys order the model too."""

    def __init__(self) -> None:
        super().__init__()
        self.root = Path(tempfile.mkdtemp())
        self.model: dict[str, ValueAndTimestamp] = {}
        self.engine = self.open(self.root / "db")
        self.store = key_value_store(TIMED, self.engine)

    def open(self, path: Path) -> Engine:
        raise NotImplementedError

    @rule(key=KEY, value=st.integers(-9, 9), timestamp=st.integers(-(2**63), 2**63 - 1))
    def put(self, key: str, value: int, timestamp: int) -> None:
        self.store.put(key, value, timestamp)
        self.model[key] = ValueAndTimestamp(value, timestamp)

    @rule(key=KEY)
    def delete(self, key: str) -> None:
        self.store.delete(key)
        self.model.pop(key, None)

    @rule(key=KEY)
    def get(self, key: str) -> None:
        assert self.store.get(key) == self.model.get(key)

    @rule(lo=st.none() | KEY, hi=st.none() | KEY)
    def range(self, lo: str | None, hi: str | None) -> None:
        with self.store.range(lo, hi) as entries:
            got = list(entries)
        assert got == self.expected(
            lambda k: (lo is None or k >= lo.encode()) and (hi is None or k <= hi.encode())
        )

    @rule(prefix=KEY)
    def prefix(self, prefix: str) -> None:
        with self.store.prefix(prefix) as entries:
            got = list(entries)
        assert got == self.expected(lambda k: k.startswith(prefix.encode()))

    @rule()
    def continue_from_a_checkpoint(self) -> None:
        self.engine.checkpoint(self.root / "copy")
        self.engine.close()
        shutil.rmtree(self.root / "db", ignore_errors=True)
        (self.root / "copy").rename(self.root / "db")
        self.engine = self.open(self.root / "db")
        self.store = key_value_store(TIMED, self.engine)

    def expected(self, keep: Any) -> list[tuple[str, ValueAndTimestamp]]:
        rows = sorted((k.encode(), v) for k, v in self.model.items())
        return [(k.decode(), v) for k, v in rows if keep(k)]

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
