"""Workers are forked from a process that has imported what they need, and that has one thread."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

SCRIPT = """
import os, sys
from state_lib.executor.worker_daemon import MODULES, prepare
prepare()
assert set(MODULES) <= set(sys.modules)
print(sorted(os.listdir("/proc/self/task")) == [str(os.getpid())])
"""


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="threads are counted in /proc")
def test_no_import_starts_a_thread() -> None:
    """A fork copies one thread, and locks that others hold as they are."""
    variables = {k: v for k, v in os.environ.items() if not k.endswith("_NUM_THREADS")}
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], env=variables, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "True"


def test_it_is_sparks_daemon() -> None:
    """Says where it listens, and ends with its standard input."""
    command = [sys.executable, "-m", "state_lib.executor.worker_daemon", "pyspark.worker"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as daemon:
        assert daemon.stdin is not None
        assert daemon.stdout is not None
        assert 0 < int.from_bytes(daemon.stdout.read(4), "big") < 1 << 16
        began = time.monotonic()
        daemon.stdin.close()
        daemon.wait(30)
        assert time.monotonic() - began < 10
