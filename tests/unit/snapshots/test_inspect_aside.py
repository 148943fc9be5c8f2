"""The process that looks into a checkpoint: what it says, and that it makes way for others."""

import os
import sys
import threading
import time
from pathlib import Path

import psutil
import pytest

from state_lib.errors import StateCorrupt, Unavailable
from state_lib.protocol.marker import Marker
from state_lib.snapshots.inspect import hashed, inspect, inspect_aside
from state_lib.specs import StoreSpec, Topology
from state_lib.stores.rocksdb.options import RocksDBOptions
from state_lib.stores.task_stores import Checkpoint, TaskStores

KV = StoreSpec("kv", "key-value", key_serde="bytes", value_serde="bytes")
TOPOLOGY = Topology("app", 1, (KV,))


def directory(path: Path, entries: int) -> Path:
    """A closed one with so many entries."""
    stores = TaskStores(TOPOLOGY, path, RocksDBOptions())
    keys = [b"%08d" % n for n in range(entries)]
    stores.write({"kv": (keys, keys)}, Checkpoint(Marker(), {}, {}))
    stores.close()
    return path


def test_it_says_what_is_there_and_how_far_it_is(tmp_path: Path) -> None:
    told: list[tuple[str, int, int]] = []
    at = directory(tmp_path / "0", 400_000)
    found, files = inspect_aside(at, TOPOLOGY, lambda *told_now: told.append(told_now))
    assert found == inspect(at, TOPOLOGY, RocksDBOptions())
    assert found.digests["kv"].endswith("/400000")
    assert [f for f in files if f.name.endswith(".sst")] == [
        f for f in hashed(at) if f.name.endswith(".sst")
    ]
    total = sum(f.size for f in files)
    assert told[0] == ("hash", 0, 0)
    assert ("hash", total, total) in told or ("digest", 0, 0) in told


def test_what_cannot_be_read_is_said(tmp_path: Path) -> None:
    with pytest.raises(StateCorrupt, match=r"cannot open .*set the directory aside"):
        inspect_aside(tmp_path, TOPOLOGY)


def test_whoever_leaves_ends_it(tmp_path: Path) -> None:
    def leave(*_: object) -> None:
        raise Unavailable("this host is stopping")

    at = directory(tmp_path / "0", 10)
    with pytest.raises(Unavailable, match="stopping"):
        inspect_aside(at, TOPOLOGY, leave)
    assert not [p for p in psutil.Process().children() if str(at) in p.cmdline()]


def test_it_rests_while_others_work(tmp_path: Path) -> None:
    at = directory(tmp_path / "0", 400_000)
    stop = threading.Event()
    loop = [sys.executable, "-c", "while True: pass"]
    busy = [psutil.Popen(loop) for _ in range(max(1, (os.cpu_count() or 1) // 2))]  # room is left
    shares: list[float] = []

    def watch() -> None:
        while not stop.wait(0.05):
            for child in psutil.Process().children():
                if str(at) in child.cmdline():
                    times = child.cpu_times()
                    shares.append(times.user + times.system)

    thread = threading.Thread(target=watch)
    thread.start()
    started = time.monotonic()
    try:
        inspect_aside(at, TOPOLOGY)
        seconds = time.monotonic() - started
    finally:
        stop.set()
        thread.join()
        for process in busy:
            process.kill()
            process.wait()
    assert max(shares) < 0.6 * seconds
