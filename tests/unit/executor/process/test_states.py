"""States over a task in this process: how much of a large one is read."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import LongType, StructField, StructType

from state_lib.executor.process import buffer as of_buffer
from state_lib.executor.process import layout
from state_lib.executor.process.buffer import Buffer
from state_lib.executor.process.codec import RowCodec
from state_lib.executor.process.expiry import Expiry
from state_lib.executor.process.states import Entries, List, Map, Scene, Value
from state_lib.processing import Processor, State
from state_lib.protocol.marker import CommitHeader
from state_lib.protocol.positions import Positions
from state_lib.specs import StoreSpec, Topology
from state_lib.stores.pages import PAGE_BYTES, PAGE_ROWS, Page
from state_lib.stores.rocksdb.engine import write_sst
from state_lib.testing.tasks import EPOCH, Tasks

MANY, LISTED = 1_000_000, 200_000
LONG = StructType([StructField("x", LongType())])
STATES = (State("by", "map", LONG.json(), LONG.json()), State("past", "list", LONG.json()))
PROCESSOR = Processor("p", b"", STATES, "", "", "utf8", "none")
STORES = ["p-timers", "p-by", "p-past"]
CODEC = RowCodec(LONG)


class Counting:
    """An exchange, and how much was read through it."""

    def __init__(self, exchange: Any) -> None:
        self.exchange, self.entries, self.calls, self.largest = exchange, 0, 0, 0
        self.put = exchange.put

    def get(self, store: str, keys: pa.BinaryArray) -> pa.BinaryArray:
        found = self.exchange.get(store, keys)
        self._count(len(keys), found.nbytes)
        return found

    def page(self, store: str, lower: bytes | None, upper: bytes | None, rows: int) -> Page:
        page: Page = self.exchange.page(store, lower, upper, rows)
        self._count(len(page.entries), page.column().nbytes)
        return page

    def _count(self, entries: int, size: int) -> None:
        self.calls, self.entries = self.calls + 1, self.entries + entries
        self.largest = max(self.largest, size)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A file of each store for RocksDB to take: faster than commits of as many entries."""
    folder, prefix = tmp_path_factory.mktemp("files"), layout.prefixed(b"a")
    values = [CODEC.pack((n,)) for n in range(MANY)]
    write_sst(folder / "p-by", [prefix + value for value in values], values)
    elements = [layout.element(b"a", n) for n in range(LISTED)]
    write_sst(folder / "p-past", elements, values[:LISTED])
    return {path.name: path for path in folder.iterdir()}


@pytest.fixture
def tasks(tmp_path: Path, files: dict[str, Path]) -> Iterator[Tasks]:
    """A map of a million entries and a long list, of key ``a``."""
    made = Tasks(Topology("app", 1, tuple(map(StoreSpec, STORES))), tmp_path)
    with made[0].view() as (_, stores):
        for store, path in files.items():
            taken = tmp_path / store
            taken.hardlink_to(path)
            stores.rocks.ingest(store, [taken])
    with made.exchange("app", 0, EPOCH, 1) as exchange:
        ends = pa.array([layout.pack_ends(0, LISTED)], pa.binary())
        key = pa.array([layout.ends_key("past", b"a")], pa.binary())
        exchange.put("p-timers", key, ends, pa.array([0], pa.int64()))
        exchange.commit(CommitHeader(EPOCH, 1, Positions(), Positions(), 0))
    yield made
    made.close()


@contextmanager
def states(tasks: Tasks) -> Iterator[tuple[Map, List, Counting, Buffer]]:
    with tasks.exchange("app", 0, EPOCH, 2) as exchange:
        counting = Counting(exchange)
        buffer = Buffer(counting, STORES)
        scene = Scene(buffer, "p-timers", 0, b"a")
        by, past = (Entries(scene, PROCESSOR, state) for state in STATES)
        yield Map(by, RowCodec(LONG)), List(past), counting, buffer


def test_one_row_touches_one_entry(tasks: Tasks) -> None:
    with states(tasks) as (by, past, read, _):
        assert by.getValue((7,)) == (7,)
        by.updateValue((7,), (70,))
        by.updateValue((-1,), (1,))
        assert (by.getValue((7,)), by.containsKey((-1,))) == ((70,), True)
        assert (read.calls, read.entries) == (1, 1)
        past.appendList([(1,), (2,)])
        assert past.exists()
        assert (read.calls, read.entries) == (2, 2), "where the list ends"


def test_going_through_it_holds_a_page(tasks: Tasks) -> None:
    with states(tasks) as (by, past, read, _):
        by.updateValue((7,), (70,))
        assert sum(x for (x,) in by.values()) == MANY * (MANY - 1) // 2 + 63
        past.appendValue((5,))
        assert sum(x for (x,) in past.get()) == LISTED * (LISTED - 1) // 2 + 5
        assert read.largest < 2 * PAGE_BYTES
        assert read.calls < (MANY + LISTED) // PAGE_ROWS + 20


def test_the_first_of_many_is_one_short_page(tasks: Tasks) -> None:
    with states(tasks) as (by, past, read, _):
        assert by.exists()
        assert next(past.get()) == (0,)
        assert read.entries < 200


def test_all_of_it_goes(tasks: Tasks) -> None:
    with states(tasks) as (by, past, _, buffer):
        by.clear()
        past.put([(3,)])
        assert (by.exists(), [*past.get()]) == (False, [(3,)])
        buffer.drop()
        assert (by.getValue((7,)), next(past.get())) == ((7,), (0,))
        by.clear()
        past.clear()
        buffer.keep(0)
        assert (by.exists(), past.exists()) == (False, False)
        assert next(past.get(), None) is None


def test_a_row_that_is_none_of_the_schemas_changes_nothing(tasks: Tasks) -> None:
    """Also where the processor goes on: what a list holds and where it ends are one."""
    wrong: list[Any] = [(1,), ("two",)]
    with states(tasks) as (by, past, _, buffer):
        past.put([(8,), (9,)])
        for change in (past.put, past.appendList):
            with pytest.raises(TypeError):
                change(wrong)
            assert [*past.get()] == [(8,), (9,)]
        with pytest.raises(TypeError):
            by.updateValue((7,), ("two",))
        assert by.getValue((7,)) == (7,)
        buffer.keep(0)
        past.clear()
        assert (past.exists(), [*past.get()]) == (False, [])


def test_a_time_to_live_is_set_with_a_row_alone(tasks: Tasks) -> None:
    with states(tasks) as (_, __, ___, buffer):
        scene = Scene(buffer, "p-timers", 0, b"a")
        entries = Entries(scene, PROCESSOR, replace(STATES[0], ttl_ms=5))
        with pytest.raises(TypeError):
            Map(entries, RowCodec(LONG)).updateValue((7,), ("two",))
        told = layout.within(layout.EXPIRIES)
        assert [*buffer.entries("p-timers", *told)] == []


@contextmanager
def short_lived(tasks: Tasks, n: int, now_ms: int) -> Iterator[tuple[Value, List, Map]]:
    """States whose entries live for 5 ms, in an exchange that removes none of them."""
    kept = [replace(state, ttl_ms=5) for state in (State("one", "value", LONG.json()), *STATES)]
    processor = replace(PROCESSOR, states=tuple(kept))
    with tasks.exchange("app", 0, EPOCH, n) as exchange:
        buffer = Buffer(exchange, [*STORES, "p-one"])
        scene = Scene(buffer, "p-timers", now_ms, b"a")
        one, by, past = (Entries(scene, processor, state) for state in kept)
        yield Value(one), List(past), Map(by, RowCodec(LONG))
        buffer.keep(0)
        buffer.send()
        exchange.commit(CommitHeader(EPOCH, n, Positions(), Positions(), 0))


def test_what_has_expired_is_not_read_though_it_is_still_there(tmp_path: Path) -> None:
    """Rows of a batch come before its expired entries go, so each read judges on its own."""
    stores = [*STORES, "p-one"]
    tasks = Tasks(Topology("app", 1, tuple(map(StoreSpec, stores))), tmp_path)
    for n, now_ms in ((1, 0), (2, 3)):
        with short_lived(tasks, n, now_ms) as (one, past, by):
            if n == 1:
                one.update((now_ms,))
            past.appendValue((now_ms,))
            by.updateValue((now_ms,), (now_ms,))
    there = {store: list(tasks[0].scan(store)[1]) for store in stores}
    assert {store: len(found) for store, found in there.items()} == {
        "p-one": 1, "p-past": 2, "p-by": 2, "p-timers": 1 + 5,
    }  # fmt: skip
    for n, (now_ms, value, left) in enumerate([(4, (0,), [0, 3]), (5, None, [3]), (8, None, [])]):
        with short_lived(tasks, 3 + n, now_ms) as (one, past, by):
            assert (one.get(), one.exists()) == (value, value is not None)
            assert ([x for (x,) in past.get()], past.exists()) == (left, bool(left))
            assert [by.getValue((x,)) for x in (0, 3)] == [
                (x,) if x in left else None for x in (0, 3)
            ]
            assert [x for x in (0, 3) if by.containsKey((x,))] == left
            assert list(by.iterator()) == [((x,), (x,)) for x in left]
            assert by.exists() == bool(left)
        assert {store: list(tasks[0].scan(store)[1]) for store in stores} == there
    tasks.close()


def test_outside_of_a_handler_there_is_no_key(tasks: Tasks) -> None:
    with states(tasks) as (by, past, _, buffer):
        del past
        by._entries.scene.key = None
        with pytest.raises(RuntimeError, match="'by' belongs to a key"):
            by.exists()
        assert buffer.broken is None


def test_what_has_expired_is_read_at_once_whatever_other_states_hold(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(of_buffer, "_MOST_BYTES", 1000)
    kept = [State(name, "value", LONG.json(), ttl_ms=5) for name in ("one", "two")]
    processor, stores = replace(PROCESSOR, states=tuple(kept)), ["p-timers", "p-one", "p-two"]
    tasks = Tasks(Topology("app", 1, tuple(map(StoreSpec, stores))), tmp_path)
    for n, now_ms in ((1, 0), (2, 5)):
        with tasks.exchange("app", 0, EPOCH, n) as exchange:
            counting = Counting(exchange)
            buffer = Buffer(counting, stores)
            scene = Scene(buffer, "p-timers", now_ms)
            entries = {one.name: Entries(scene, processor, one) for one in kept}
            if n == 1:
                for number in range(100):
                    for one in entries.values():
                        one.put(b"%d" % number, one.packed((number,)))
                buffer.keep(0)
            else:
                Expiry(scene, entries).remove()
            buffer.send()
            exchange.commit(CommitHeader(EPOCH, n, Positions(), Positions(), 0))
    assert counting.calls <= 5, "pages of what is due, and each state at once"
    assert [list(tasks[0].scan(store)[1]) for store in stores] == [[], [], []]
    tasks.close()
