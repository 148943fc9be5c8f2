"""What a driver's log says at its end: its own lines, and none of earlier launches."""

from __future__ import annotations

import os
import sys
import time
from dataclasses import replace
from pathlib import Path

from state_lib.drivers.process import TAIL_BYTES, DriverProcess, launch
from state_lib.spark.running import _first_lines


def ended(log: Path, code: str) -> DriverProcess:
    process = launch("app", [sys.executable, "-c", code], env=os.environ, log=log)
    deadline = time.monotonic() + 30
    while process.alive():
        assert time.monotonic() < deadline
        time.sleep(0.02)
    return process


def test_they_are_those_since_its_launch_without_noise_of_the_jvm(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("of a driver before\n")
    first = ended(log, "raise RuntimeError('the first')")
    assert first.last_lines()[-1] == "RuntimeError: the first"
    assert "of a driver before" not in first.last_lines()
    noise = "WARNING: Using incubator modules: jdk.incubator.vector"
    mine = "print('WARNING: mine', 'launched', os.environ['HOLDFAST_DRIVER_ID'])"
    second = ended(log, f"import os; print({noise!r}); {mine}")
    said = [f"WARNING: mine launched {second.id}"]
    assert second.last_lines() == said
    known = replace(second, pid=0, started_at=0)  # as one that is adopted is known
    assert known.last_lines() == said


def test_what_is_longer_than_the_tail_is_its_own(tmp_path: Path) -> None:
    process = ended(tmp_path / "log", f"print('x' * {TAIL_BYTES}); print('last')")
    assert process.last_lines()[-1] == "last"


def test_an_error_without_a_message_is_told_by_its_class() -> None:
    assert _first_lines(AssertionError()) == "AssertionError"
    assert _first_lines(ValueError("\n")) == "ValueError"
    assert _first_lines(ValueError("why\nso")) == "why\nso"
