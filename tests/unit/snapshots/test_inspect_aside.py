"""The process that looks into a checkpoint: what it says, and that it makes way for others."""

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from state_lib.errors import HoldfastError, StateCorrupt, Unavailable
from state_lib.protocol.marker import Marker
from state_lib.snapshots import aside
from state_lib.snapshots import inspect as module
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


def children(of: Path) -> list[psutil.Process]:
    """Processes of ours that look into it."""
    found = []
    for child in psutil.Process().children():
        with contextlib.suppress(psutil.Error):
            if str(of) in child.cmdline():
                found.append(child)
    return found


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Progress is looked at often."""
    monkeypatch.setattr(module, "_LOOK_S", 0.01)


@pytest.mark.usefixtures("looks")
def test_it_says_what_is_there_and_how_far_it_is(tmp_path: Path) -> None:
    told: list[tuple[str, int, int]] = []
    at = directory(tmp_path / "0", 400_000)

    def report(phase: str, done: int, total: int) -> None:
        told.append((phase, done, total))

    found, files = inspect_aside(at, TOPOLOGY, report)
    assert found == inspect(at, TOPOLOGY, RocksDBOptions())
    assert found.digests["kv"].endswith("/400000")
    data = [f for f in files if f.name.endswith(".sst")]
    assert data
    assert data == [f for f in hashed(at) if f.name.endswith(".sst")]
    assert told[0] == ("hash", 0, 0)
    assert told[-1] == ("digest", 0, 0)


def test_what_cannot_be_read_is_said(tmp_path: Path) -> None:
    with pytest.raises(StateCorrupt, match=r"cannot open .*set the directory aside"):
        inspect_aside(tmp_path, TOPOLOGY)


@pytest.mark.usefixtures("looks")
@pytest.mark.parametrize("phase", ["hash", "digest"])
def test_one_that_is_killed_is_said(tmp_path: Path, phase: str) -> None:
    at = directory(tmp_path / "0", 400_000)

    def kill(now: str, *_: object) -> None:
        if now == phase:
            for child in children(at):
                child.kill()

    with pytest.raises(HoldfastError, match=rf"reading .*0 ended with code -{signal.SIGKILL:d}"):
        inspect_aside(at, TOPOLOGY, kill)


def test_whoever_leaves_ends_it(tmp_path: Path) -> None:
    def leave(*_: object) -> None:
        raise Unavailable("this host is stopping")

    at = directory(tmp_path / "0", 10)
    with pytest.raises(Unavailable, match="stopping"):
        inspect_aside(at, TOPOLOGY, leave)
    assert not children(at)


@pytest.mark.usefixtures("looks")
def test_one_looks_at_a_time(tmp_path: Path) -> None:
    at = directory(tmp_path / "0", 100_000)
    told: list[str] = []
    many: list[int] = []

    def report(phase: str, *_: object) -> None:
        told.append(phase)
        many.append(len(children(at)))

    threads = [
        threading.Thread(target=inspect_aside, args=[at, TOPOLOGY, report]) for _ in range(3)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert max(many) == 1
    assert "queued" in told


def test_who_waits_for_a_turn_can_leave(tmp_path: Path) -> None:
    def leave(phase: str, *_: object) -> None:
        assert phase == "queued"
        raise Unavailable("this host is stopping")

    with module._TURN, pytest.raises(Unavailable, match="stopping"):
        inspect_aside(tmp_path, TOPOLOGY, leave)
    assert module._TURN.acquire(timeout=0)
    module._TURN.release()


LOOP = """
import signal, sys, time
from state_lib.snapshots import aside
aside._FREE = float(sys.argv[1])
aside.make_way()
ended = time.process_time() + 0.3
began = time.monotonic()
while time.process_time() < ended:
    pass
print(time.monotonic() - began)
signal.setitimer(signal.ITIMER_PROF, 0)
"""


def loop(free: float) -> float:
    """Seconds for 0.3 s of work that rests while less than that part of the machine is idle."""
    command = [sys.executable, "-c", LOOP, f"{free}"]
    return float(subprocess.run(command, capture_output=True, check=True).stdout)


@pytest.fixture
def busy() -> Iterator[None]:
    """All cores are, at usual priority."""
    command = [sys.executable, "-c", "while True: pass"]
    processes = [subprocess.Popen(command) for _ in range(os.cpu_count() or 1)]
    try:
        time.sleep(0.1)
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


@pytest.mark.usefixtures("busy")
def test_it_rests_while_others_work() -> None:
    unresting, resting = loop(-1.0), loop(aside._FREE)
    rest = 0.3 / aside._WORK_S * aside._REST_S
    assert resting > max(rest / 2, unresting)
