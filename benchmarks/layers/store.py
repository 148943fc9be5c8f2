"""The RocksDB engine: sorted reads, atomic writes, runs, scans."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from benchmarks.layers.timing import Timing, timed
from benchmarks.sources import key
from state_lib.stores.columns import columns
from state_lib.stores.rocksdb import RocksDBEngine
from state_lib.stores.rocksdb.options import RocksDBOptions

FAMILY, RUNS = "counts", "runs"
HELD = 10
"""The store holds so many times the rows of one operation."""
VALUE = bytes(16)


def run(rows: int, folder: Path) -> Iterator[Timing]:
    """Time every operation over ``rows`` rows of a store with `HELD` times as many."""
    engine = RocksDBEngine(folder / "rocksdb", RocksDBOptions())
    rng = np.random.default_rng(1)
    order = rng.permutation(rows * HELD).reshape(HELD, rows)
    parts = [sorted(key(i) for i in part) for part in order.tolist()]
    try:
        for part in parts:
            engine.write({FAMILY: (part, [VALUE] * rows)})

        def part_of(repeat: int) -> list[bytes]:
            return parts[repeat % HELD]

        absent = [k + b"-" for k in parts[0]]
        yield timed("store", "get, present", rows, lambda n: engine.get_many(FAMILY, part_of(n)))
        yield timed("store", "get, absent", rows, lambda _: engine.get_many(FAMILY, absent))
        yield timed(
            "store", "write", rows, lambda n: engine.write({FAMILY: (part_of(n), [VALUE] * rows)})
        )

        def run_of(repeat: int) -> None:
            path = folder / f"run-{repeat}.sst"
            engine.write_run(path, part_of(repeat), [VALUE] * rows)
            engine.ingest(RUNS, [path])

        yield timed("store", "sorted run, ingested", rows, run_of)

        def scan(_: int) -> int:
            with engine.scan(FAMILY, None, None) as entries:
                return sum(1 for _ in entries)

        yield timed("store", "scan", rows * HELD, scan)

        def scan_columns(_: int) -> int:
            with engine.scan(FAMILY, None, None) as entries:
                return sum(len(part.keys) for part in columns(entries))

        yield timed("store", "scan in columns", rows * HELD, scan_columns)

        def flush(repeat: int) -> None:
            engine.write({FAMILY: (part_of(repeat), [VALUE] * rows)})
            engine.flush()

        yield timed("store", "write and flush", rows, flush)
    finally:
        engine.close()
