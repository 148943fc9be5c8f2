"""What every engine does. A backend supplies `open` and inherits all tests."""

from __future__ import annotations

import shutil
import tempfile
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from state_lib.errors import ConfigurationError, InvalidRequest, StateCorrupt, Unavailable
from state_lib.stores.interfaces import Engine
from state_lib.stores.memory import MemoryEngine
from state_lib.stores.rocksdb import RocksDBEngine, RocksDBOptions

SMALL = RocksDBOptions(write_buffer_bytes=64 << 10, block_cache_bytes=8 << 20)


class EngineConformance(ABC):
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

    def test_read_your_writes_and_deletes(self, engine: Engine) -> None:
        engine.write({"a": ([b"1", b"2"], [b"x", b""])})
        assert engine.get("a", b"1") == b"x"
        assert engine.get("a", b"2") == b""
        engine.write({"a": ([b"1", b"absent"], [None, None])})
        assert engine.get_many("a", [b"2", b"1", b"2"]) == [b"", None, b""]

    def test_a_later_entry_of_a_key_wins(self, engine: Engine) -> None:
        engine.write({"a": ([b"k", b"k", b"d", b"d"], [b"1", b"2", b"3", None])})
        assert engine.get_many("a", [b"k", b"d"]) == [b"2", None]

    def test_many_keys_in_the_order_asked(self, engine: Engine) -> None:
        keys = [i.to_bytes(2, "big") for i in range(1000)]
        engine.write({"a": (keys, keys)})
        asked = [*keys[::-3], b"absent", b""]
        assert engine.get_many("a", asked) == [*asked[:-2], None, None]
        assert engine.get_many("a", []) == []

    def test_families_are_apart_and_sorted(self, engine: Engine) -> None:
        engine.write({"b": ([b"k"], [b"1"]), "a": ([b"k"], [b"2"])})
        engine.create("c@-1")
        engine.create("c@-1")
        assert engine.families() == ["a", "b", "c@-1"]
        assert engine.get("b", b"k") == b"1"

    def test_a_missing_family_is_empty(self, engine: Engine) -> None:
        assert engine.get("no", b"k") is None
        assert engine.get_many("no", [b"k", b"l"]) == [None, None]
        with engine.scan("no", None, None) as entries:
            assert list(entries) == []
        assert engine.approximate_num_entries("no") == 0
        assert engine.size_bytes("no") == 0
        engine.drop("no")
        assert engine.families() == []

    def test_a_dropped_family_comes_back_empty(self, engine: Engine) -> None:
        engine.write({"a": ([b"k"], [b"v"])})
        engine.drop("a")
        assert (engine.families(), engine.get("a", b"k")) == ([], None)
        engine.write({"a": ([b"other"], [b"v"])})
        assert engine.get("a", b"k") is None

    @pytest.mark.parametrize(
        ("lower", "upper", "expected"),
        [
            (None, None, [b"", b"a", b"a\0", b"b", b"\xff"]),
            (b"a", b"b", [b"a", b"a\0"]),
            (b"a\0", None, [b"a\0", b"b", b"\xff"]),
            (None, b"a\0", [b"", b"a"]),
            (b"b", b"a", []),
            (b"a", b"a", []),
            (None, b"", []),
            (b"", b"a", [b""]),
        ],
    )
    @pytest.mark.parametrize("reverse", [False, True])
    def test_scan_bounds(
        self, engine: Engine, lower: Any, upper: Any, expected: list[bytes], reverse: bool
    ) -> None:
        keys = [b"\xff", b"a\0", b"", b"b", b"a"]
        engine.write({"a": (keys, keys)})
        with engine.scan("a", lower, upper, reverse=reverse) as entries:
            got = list(entries)
        assert got == [(k, k) for k in (expected[::-1] if reverse else expected)]

    def test_a_scan_does_not_see_later_writes(self, engine: Engine) -> None:
        keys = [bytes([i]) for i in range(100)]
        engine.write({"a": (keys, keys)})
        with engine.scan("a", None, None) as entries, engine.scan("a", b"2", None) as untouched:
            assert next(entries) == (b"\0", b"\0")
            engine.write({"a": ([*keys, b"new"], [None] * 100 + [b"new"])})
            assert [k for k, _ in entries] == keys[1:]
            engine.drop("a")
            assert [k for k, _ in untouched] == [k for k in keys if k >= b"2"]

    @pytest.mark.parametrize("reverse", [False, True])
    def test_what_is_written_beyond_its_end_does_not_disturb_a_scan(
        self, engine: Engine, *, reverse: bool
    ) -> None:
        engine.write({"a": ([b"k1", b"k2"], [b"", b""])})
        with engine.scan("a", b"k", b"l", reverse=reverse) as entries:
            engine.write({"a": ([b"k0", b"k3"], [b"", b""])})
            assert sorted(k for k, _ in entries) == [b"k1", b"k2"]

    def test_open_iterators_are_counted_and_dead_afterwards(self, engine: Engine) -> None:
        engine.write({"a": ([b"1", b"2"], [b"", b""])})
        with engine.scan("a", None, None) as first, engine.scan("no", None, None):
            next(first)
            assert engine.open_iterators == 2
        assert engine.open_iterators == 0
        assert list(first) == []
        with pytest.raises(ZeroDivisionError), engine.scan("a", None, None):
            raise ZeroDivisionError
        assert engine.open_iterators == 0

    @pytest.mark.parametrize(
        "bad", [([b"k"], []), ([b"k", "text"], [b"v", b"v"]), ([b"k"], ["text"])]
    )
    def test_a_refused_write_changes_no_family(self, engine: Engine, bad: Any) -> None:
        engine.write({"a": ([b"k"], [b"old"])})
        with pytest.raises(InvalidRequest):
            engine.write({"a": ([b"k"], [b"new"]), "b": bad})
        assert engine.get("a", b"k") == b"old"
        assert engine.get("b", b"k") is None

    def test_names_the_engine_needs_are_refused(self, engine: Engine) -> None:
        with pytest.raises(ConfigurationError, match="default"):
            engine.create("default")

    def test_estimates_grow(self, engine: Engine) -> None:
        engine.write({"a": ([b"1", b"2"], [b"x" * 5000, b""])})
        assert engine.approximate_num_entries("a") == 2
        assert engine.size_bytes("a") > 5000

    def test_runs_apply_in_order_over_what_is_there(self, engine: Engine, tmp_path: Path) -> None:
        engine.write({"a": ([b"1", b"2", b"3"], [b"old"] * 3)})
        runs = [tmp_path / "0.sst", tmp_path / "1.sst"]
        engine.write_run(runs[0], [b"1", b"2", b"4"], [b"first", None, b"first"])
        engine.write_run(runs[1], [b"0", b"1"], [b"second", b"second"])
        engine.ingest("a", runs)
        with engine.scan("a", None, None) as entries:
            assert list(entries) == [
                (b"0", b"second"), (b"1", b"second"), (b"3", b"old"), (b"4", b"first")
            ]  # fmt: skip
        engine.write({"a": ([b"1"], [b"later"])})
        assert engine.get("a", b"1") == b"later"
        assert not any(run.exists() for run in runs)

    @pytest.mark.parametrize("keys", [[], [b"b", b"a"], [b"a", b"a"]])
    def test_runs_must_be_ascending(
        self, engine: Engine, tmp_path: Path, keys: list[bytes]
    ) -> None:
        with pytest.raises(InvalidRequest):
            engine.write_run(tmp_path / "x", keys, keys)

    def test_a_file_that_is_no_run_is_corrupt(self, engine: Engine, tmp_path: Path) -> None:
        (tmp_path / "x").write_bytes(b"nothing of the sort" * 10)
        with pytest.raises(StateCorrupt, match=str(tmp_path)):
            engine.ingest("a", [tmp_path / "x"])

    def test_a_checkpoint_opens_as_it_was(self, engine: Engine, tmp_path: Path) -> None:
        engine.write({"a": ([b"k"], [b"v"]), "b@-3": ([b"k"], [b"w"])})
        engine.create("empty")
        engine.flush()
        engine.checkpoint(tmp_path / "copy")
        engine.write({"a": ([b"k"], [b"later"])})
        copy = self.open(tmp_path / "copy")
        assert copy.families() == ["a", "b@-3", "empty"]
        assert (copy.get("a", b"k"), copy.get("b@-3", b"k")) == (b"v", b"w")
        copy.close()
        with pytest.raises(InvalidRequest):
            engine.checkpoint(tmp_path / "copy")

    def test_after_close_everything_is_unavailable(self, tmp_path: Path) -> None:
        engine = self.open(tmp_path / "db")
        engine.write({"a": ([b"1", b"2"], [b"", b""])})
        scan = engine.scan("a", None, None)
        entries = scan.__enter__()
        next(entries)
        engine.close()
        engine.close()
        assert list(entries) == []
        scan.__exit__(None, None, None)
        for use in (
            lambda: engine.get("a", b"1"),
            lambda: engine.get_many("a", [b"1"]),
            lambda: engine.write({"a": ([b"1"], [b""])}),
            lambda: engine.scan("a", None, None).__enter__(),
            engine.families,
            lambda: engine.size_bytes("a"),
            lambda: engine.create("b"),
            engine.flush,
            lambda: engine.checkpoint(tmp_path / "copy"),
        ):
            with pytest.raises(Unavailable, match="closed"):
                use()

    def test_readers_beside_a_writer_see_whole_writes(self, engine: Engine) -> None:
        keys = [bytes([i]) for i in range(50)]
        engine.write({"a": (keys, [b"\0"] * 50)})
        torn: list[set[bytes]] = []
        stop = threading.Event()

        def read() -> None:
            while not stop.is_set():
                with engine.scan("a", None, None) as entries:
                    seen = {value for _, value in entries}
                if len(seen) != 1:
                    torn.append(seen)

        threads = [threading.Thread(target=read) for _ in range(2)]
        for thread in threads:
            thread.start()
        for n in range(200):
            engine.write({"a": (keys, [bytes([n])] * 50)})
        stop.set()
        for thread in threads:
            thread.join()
        assert torn == []


class TestRocksDB(EngineConformance):
    @staticmethod
    def open(path: Path) -> Engine:
        return RocksDBEngine(path, SMALL)


class TestMemory(EngineConformance):
    @staticmethod
    def open(path: Path) -> Engine:
        return MemoryEngine(path)


KEY = st.binary(max_size=3)
FAMILY = st.sampled_from(["a", "b@-1", "b@0"])
CHANGE = st.lists(st.tuples(KEY, st.one_of(st.none(), st.binary(max_size=3))), max_size=8)


class EngineMachine(RuleBasedStateMachine):
    """An engine against a dict of dicts."""

    durable = False

    def __init__(self) -> None:
        super().__init__()
        self.root = Path(tempfile.mkdtemp())
        self.model: dict[str, dict[bytes, bytes]] = {}
        self.copies = 0
        self.engine = self.open(self.root / "db")

    def open(self, path: Path) -> Engine:
        raise NotImplementedError

    @rule(changes=st.dictionaries(FAMILY, CHANGE, max_size=3))
    def write(self, changes: dict[str, list[tuple[bytes, bytes | None]]]) -> None:
        self.engine.write({f: ([k for k, _ in c], [v for _, v in c]) for f, c in changes.items()})
        for family, rows in changes.items():
            known = self.model.setdefault(family, {})
            for key, value in rows:
                if value is None:
                    known.pop(key, None)
                else:
                    known[key] = value

    @rule(family=FAMILY)
    def drop(self, family: str) -> None:
        self.engine.drop(family)
        self.model.pop(family, None)

    @rule(family=FAMILY, rows=st.dictionaries(KEY, st.one_of(st.none(), KEY), min_size=1))
    def ingest(self, family: str, rows: dict[bytes, bytes | None]) -> None:
        keys = sorted(rows)
        self.engine.write_run(self.root / "run", keys, [rows[k] for k in keys])
        self.engine.ingest(family, [self.root / "run"])
        known = self.model.setdefault(family, {})
        known.update({k: v for k, v in rows.items() if v is not None})
        for key in [k for k, v in rows.items() if v is None]:
            known.pop(key, None)

    @rule(family=FAMILY, lower=st.none() | KEY, upper=st.none() | KEY, reverse=st.booleans())
    def scan(self, family: str, lower: Any, upper: Any, reverse: bool) -> None:
        with self.engine.scan(family, lower, upper, reverse=reverse) as entries:
            got = list(entries)
        known = sorted(self.model.get(family, {}).items(), reverse=reverse)
        assert got == [
            (k, v)
            for k, v in known
            if (lower is None or k >= lower) and (upper is None or k < upper)
        ]

    @rule(family=FAMILY, keys=st.lists(KEY, max_size=5))
    def get(self, family: str, keys: list[bytes]) -> None:
        known = self.model.get(family, {})
        assert self.engine.get_many(family, keys) == [known.get(k) for k in keys]

    @rule()
    def flush(self) -> None:
        self.engine.flush()

    @rule()
    def continue_from_a_checkpoint(self) -> None:
        self.copies += 1
        self.engine.checkpoint(self.root / f"copy{self.copies}")
        self.engine.close()
        self.engine = self.open(self.root / f"copy{self.copies}")

    @precondition(lambda self: self.durable)
    @rule()
    def reopen(self) -> None:
        path = self.engine.path
        self.engine.close()
        self.engine = self.open(path)

    @invariant()
    def same_families(self) -> None:
        assert self.engine.families() == sorted(self.model)
        assert self.engine.open_iterators == 0

    def teardown(self) -> None:
        self.engine.close()
        shutil.rmtree(self.root)


class RocksDBMachine(EngineMachine):
    durable = True

    def open(self, path: Path) -> Engine:
        return RocksDBEngine(path, SMALL)


class MemoryMachine(EngineMachine):
    def open(self, path: Path) -> Engine:
        return MemoryEngine(path)


TestRocksDBMachine = RocksDBMachine.TestCase
TestRocksDBMachine.settings = settings(max_examples=25, stateful_step_count=15, deadline=None)
TestMemoryMachine = MemoryMachine.TestCase
TestMemoryMachine.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
