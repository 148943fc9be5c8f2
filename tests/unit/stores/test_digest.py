from __future__ import annotations

from pathlib import Path

import xxhash
from hypothesis import given, settings
from hypothesis import strategies as st

from state_lib.keys import window_key
from state_lib.specs import StoreSpec
from state_lib.stores.bytes_store import bytes_store
from state_lib.stores.digest import digest, store_digest
from state_lib.stores.memory import MemoryEngine
from state_lib.stores.rocksdb import RocksDBEngine

ROWS = st.dictionaries(st.binary(max_size=4), st.binary(max_size=4), max_size=8)


def test_one_entry_is_the_hash_of_its_length_prefixed_bytes() -> None:
    expected = xxhash.xxh3_128_intdigest(b"\0\0\0\1k\0\0\0\2vv")
    assert digest([(b"k", b"vv")]) == (expected, 1)
    assert str(digest([])) == "0" * 32 + "/0"


@settings(deadline=None)
@given(ROWS, st.randoms(use_true_random=False))
def test_order_does_not_matter(rows: dict[bytes, bytes], random: st.random.Random) -> None:  # type: ignore[name-defined]
    shuffled = list(rows.items())
    random.shuffle(shuffled)
    assert digest(shuffled) == digest(rows.items())


@settings(deadline=None)
@given(ROWS, ROWS)
def test_different_stores_differ(one: dict[bytes, bytes], other: dict[bytes, bytes]) -> None:
    assert (digest(one.items()) == digest(other.items())) == (one == other)


def test_lengths_keep_key_and_value_apart_and_twice_is_not_nothing() -> None:
    assert digest([(b"ab", b"c")]) != digest([(b"a", b"bc")])
    assert digest([(b"k", b"v")] * 2).total not in (0, digest([(b"k", b"v")]).total)
    many = digest((bytes([i]), b"") for i in range(256))
    assert many.total < 1 << 128


def test_backends_agree_and_expired_windows_do_not_count(tmp_path: Path) -> None:
    spec = StoreSpec("w", "window", window_size_ms=1, retention_ms=120_000)
    keys = [window_key(b"k", start) for start in (0, 1, 60_000, -5)]
    seen = []
    for engine in (RocksDBEngine(tmp_path / "db"), MemoryEngine("unused")):
        store = bytes_store(spec, engine)
        engine.write(store.changes(keys, [b"v"] * 4))
        before = store_digest(store, 120_000)
        for family in store.expired_families(120_000):
            engine.drop(family)
        seen += [before, store_digest(store, 120_000)]
        engine.close()
    assert set(seen) == {digest([(keys[1], b"v"), (keys[2], b"v")])}
