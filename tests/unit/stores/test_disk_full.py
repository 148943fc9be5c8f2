"""A full disk, for real: a small tmpfs in a mount namespace of its own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

CHILD = """
import os, sys, time
from pathlib import Path
from state_lib.errors import Unavailable
from state_lib.stores.rocksdb import RocksDBEngine, RocksDBOptions

root = Path(sys.argv[1])
options = RocksDBOptions(write_buffer_bytes=1 << 20)
engine = RocksDBEngine(root / "db", options)

def write(n):
    keys = [(n * 200 + i).to_bytes(8, "big") for i in range(200)]
    mark = n.to_bytes(8, "big")
    engine.write({
        "a": (keys, [os.urandom(100) for _ in keys]), "__meta__": ([b"n"], [mark])
    })

def refused(call):
    try:
        call()
    except Unavailable as error:
        assert "No space left" in error.message and str(root) in error.message, error.message
        assert "free space" in error.message, error.message
        return True
    return False

n = 0
while not refused(lambda: write(n)):
    n += 1
    assert n < 3000
applied = int.from_bytes(engine.get("__meta__", b"n"), "big")
assert applied == n - 1, (applied, n)
assert refused(lambda: write(n)) and refused(engine.flush)
assert refused(lambda: engine.checkpoint(root / "copy")) and not (root / "copy").exists()
assert engine.get("a", (0).to_bytes(8, "big"))

(root / "ballast").unlink()
started = time.monotonic()
while refused(lambda: write(n)):
    assert time.monotonic() - started < 30, "did not resume"
    time.sleep(0.1)
print(f"resumed after {time.monotonic() - started:.1f} s")
engine.flush()
engine.close()
engine = RocksDBEngine(root / "db", options)
assert int.from_bytes(engine.get("__meta__", b"n"), "big") == n
with engine.scan("a", None, None) as entries:
    assert sum(1 for _ in entries) == 200 * (n + 1)
engine.close()
print("whole")
"""

SHELL = """
mount -t tmpfs -o size=26m none {root} && head -c 20000000 /dev/zero > {root}/ballast &&
exec {python} -c "$CHILD" {root}
"""
"""The ballast is three times the store: a compaction that goes on by itself needs the store's size
once more for a while, and what is flushed at its side must have room too."""


def test_a_full_disk_refuses_writes_and_resumes_by_itself(tmp_path: Path) -> None:
    probe = subprocess.run(
        ["unshare", "-Urm", "mount", "-t", "tmpfs", "none", str(tmp_path)],
        capture_output=True,
        check=False,
    )
    if probe.returncode:
        pytest.skip(f"no mount namespaces here: {probe.stderr.decode().strip()}")
    script = SHELL.format(root=tmp_path, python=sys.executable)
    done = subprocess.run(
        ["unshare", "-Urm", "sh", "-c", script],
        env={"CHILD": CHILD, "PATH": "/usr/bin:/bin", "PYTHONPATH": str(Path.cwd())},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "whole"
