"""What the alarm of compaction reads, of real engines: its numbers at rest and at work."""

from __future__ import annotations

import os
from contextlib import closing
from pathlib import Path

from state_lib.host.collector import PROPERTIES, RUNNING_COMPACTIONS
from state_lib.stores.rocksdb import RocksDBEngine, RocksDBOptions
from tests.support.waiting import until


def flushed(engine: RocksDBEngine, entries: int) -> None:
    """One more file, of as many kB: bytes that cannot be compressed."""
    keys = [os.urandom(8) for _ in range(entries)]
    engine.write({"a": (keys, [os.urandom(1000) for _ in keys])})
    engine.flush()


def pending(engine: RocksDBEngine) -> int:
    return engine.property_int("a", PROPERTIES["compaction_pending"])


def running(engine: RocksDBEngine) -> int:
    return engine.property_int("a", RUNNING_COMPACTIONS)


def test_a_store_at_rest_may_have_a_compaction_pending(tmp_path: Path) -> None:
    """Four files start a merge, and none of these is worth one: no reason for an alarm."""
    with closing(RocksDBEngine(tmp_path)) as engine:
        for entries in (1000, 200, 40):
            flushed(engine, entries)
        assert pending(engine) == 0
        flushed(engine, 8)
        until(lambda: running(engine) == 0, 10, "at rest")
        assert pending(engine) == 1
        assert engine.property_int("a", "rocksdb.estimate-pending-compaction-bytes") == 0


def test_a_merge_is_seen(tmp_path: Path) -> None:
    """Four files of one size: 4 MB, at 4 MB a second."""
    slow = RocksDBOptions(rate_limit_bytes_per_second=4 << 20)
    with closing(RocksDBEngine(tmp_path, slow)) as engine:
        for _ in range(4):
            flushed(engine, 1000)
        until(lambda: running(engine) > 0, 10, "merging")
        until(lambda: running(engine) == pending(engine) == 0, 30, "merged")
