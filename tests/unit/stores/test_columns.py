"""Scans in columns hold what scans hold, in bounded parts."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pytest

from state_lib.keys import window_key
from state_lib.specs import StoreSpec
from state_lib.stores import columns as module
from state_lib.stores.bytes_store import bytes_store
from state_lib.stores.columns import Columns, columns, live, selected
from state_lib.stores.interfaces import BytesStore
from state_lib.stores.memory import MemoryEngine

HOUR = 3_600_000
KV = StoreSpec("kv")
WIN = StoreSpec("win", kind="window", window_size_ms=HOUR, retention_ms=4 * HOUR)


@pytest.fixture
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MemoryEngine]:
    made = MemoryEngine(tmp_path_factory.mktemp("engine"))
    yield made
    made.close()


def filled(spec: StoreSpec, engine: MemoryEngine, entries: dict[bytes, bytes]) -> BytesStore:
    store = bytes_store(spec, engine)
    engine.write(store.changes(list(entries), list(entries.values())))
    return store


def pairs(parts: Iterator[Columns] | list[Columns]) -> list[tuple[bytes, bytes]]:
    return [
        pair for p in parts for pair in zip(p.keys.to_pylist(), p.values.to_pylist(), strict=True)
    ]


@pytest.mark.parametrize("count", [0, 1, 511, 512, 513, 60_000])
def test_every_entry_is_in_exactly_one_part(count: int) -> None:
    entries = [(b"%06d" % i, b"v" * (i % 5)) for i in range(count)]
    parts = list(columns(iter(entries)))
    assert pairs(parts) == entries
    assert all(0 < len(part.keys) <= module.MAX_ROWS for part in parts)
    assert len(parts) == (0 if count == 0 else 1 if count < 60_000 else 2)


def test_parts_are_bounded_in_bytes_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_BYTES", 10_000)
    entries = [(b"%06d" % i, bytes(100)) for i in range(2_000)]
    parts = list(columns(iter(entries)))
    assert pairs(parts) == entries
    assert [len(part.keys) for part in parts] == [512, 512, 512, 464]


def test_some_keys_of_a_key_value_store(engine: MemoryEngine) -> None:
    store = filled(KV, engine, {b"a": b"1", b"ab": b"2", b"b": b"3"})
    for keys, expected in (
        (None, [(b"a", b"1"), (b"ab", b"2"), (b"b", b"3")]),
        ([b"a", b"b", b"c"], [(b"a", b"1"), (b"b", b"3")]),
        ([], []),
    ):
        with selected(store, keys) as entries:
            assert list(entries) == expected


def test_some_keys_of_a_window_store_are_no_prefixes(engine: MemoryEngine) -> None:
    """``a`` begins ``ab``, and the bytes of a start may look like more of a key."""
    some = {
        window_key(key, start): key
        for key in (b"", b"a", b"ab", b"a" + bytes(12), b"\xff", b"\xff\xff")
        for start in (0, HOUR, 20 * HOUR)
    }
    store = filled(WIN, engine, some)
    for key in (b"", b"a", b"a" + bytes(12), b"\xff"):
        with selected(store, [key]) as entries:
            found = dict(entries)
        assert found == {window_key(key, start): key for start in (0, HOUR, 20 * HOUR)}
    with selected(store, [b"a", b"nothing", b"ab"]) as entries:
        assert sorted({value for _, value in entries}) == [b"a", b"ab"]


def test_what_is_selected_stays_as_it_was(engine: MemoryEngine) -> None:
    store = filled(KV, engine, {b"a": b"1", b"b": b"2"})
    with selected(store, None) as entries:
        engine.write(store.changes([b"a", b"c"], [b"9", b"9"]))
        assert list(entries) == [(b"a", b"1"), (b"b", b"2")]


def test_expired_windows_are_left_out() -> None:
    starts = [-HOUR, 0, HOUR, HOUR + 1, 9 * HOUR]
    part = Columns(
        pa.array([window_key(b"k", start) for start in starts], pa.binary()),
        pa.array([b"%d" % start for start in starts], pa.binary()),
    )
    left = live(WIN, part, 5 * HOUR)
    assert left.values.to_pylist() == [b"%d" % start for start in starts if start > HOUR]
    assert live(WIN, part, -9 * HOUR) == part
    assert live(KV, part, 10**15) == part
