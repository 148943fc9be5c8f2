"""What a killed process left in temporary directories goes with the next that makes one."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from state_lib.scratch import scratch

HOLDS = """
import sys
from state_lib.scratch import scratch
with scratch("one-", sys.argv[1]) as made:
    (made / "copy").write_bytes(bytes(1000))
    print(made, flush=True)
    sys.stdin.read()
"""


@contextmanager
def holder(folder: Path) -> Iterator[tuple[subprocess.Popen[str], Path]]:
    """Another process, and its directory."""
    command = [sys.executable, "-c", HOLDS, str(folder)]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as process:
        assert process.stdout is not None
        try:
            yield process, Path(process.stdout.readline().strip())
        finally:
            process.kill()


def test_it_vanishes(tmp_path: Path) -> None:
    with scratch("one-", tmp_path) as made:
        assert list(made.iterdir()) == []
        (made / "copy").touch()
    assert list(tmp_path.iterdir()) == []


def test_one_of_a_killed_process_goes_and_that_of_a_living_one_stays(tmp_path: Path) -> None:
    with holder(tmp_path) as (killed, left), holder(tmp_path) as (_, held):
        os.kill(killed.pid, signal.SIGKILL)
        killed.wait()
        assert (left / "copy").exists()
        with scratch("one-", tmp_path) as made:
            assert made.parent.parent == tmp_path
            assert not left.parent.exists()
            assert (held / "copy").exists()


def test_what_was_never_held_or_has_another_name_stays(tmp_path: Path) -> None:
    (tmp_path / "one-made-just-now").mkdir()
    (tmp_path / "two").mkdir()
    (tmp_path / "two" / "held").touch()
    with scratch("one-", tmp_path):
        pass
    assert sorted(one.name for one in tmp_path.iterdir()) == ["one-made-just-now", "two"]
