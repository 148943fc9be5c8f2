"""Run a command in PID and network namespaces of its own, or where there are none, marked.

In namespaces its ports are private, and nothing that it starts outlives it: process 1 is init.py,
and with it the kernel ends all others. CI_ISOLATION=off forces the mark.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

from state_lib import processes

INIT = Path(__file__).with_name("init.py")
MARK = "STAGE_MARK"
TOO_LONG = 124
"""The exit code of a command over its limit."""
STOPPING_S = 90.0
"""From the interrupt that ends a stage in good order to the SIGKILL that ends it in none."""


@dataclass(frozen=True)
class Outcome:
    """How a command ended: its exit code (`TOO_LONG` over its limit), and what it left running.

    ``cpu_s``: what it took of the cores.
    """

    code: int
    left: list[str]
    cpu_s: float = 0.0


def namespaces(*, network: bool) -> list[str]:
    """The command that makes namespaces, tried out; empty where the machine has none."""
    if os.environ.get("CI_ISOLATION") == "off":
        return []
    made = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc"]
    made += [] if network else ["--net"]
    made += [] if os.geteuid() == 0 else ["--map-root-user"]
    probe = [*made, sys.executable, str(INIT), os.devnull, "true"]
    try:
        done = subprocess.run(probe, capture_output=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return []
    return made if done.returncode == 0 else []


def run(
    command: Sequence[str],
    env: Mapping[str, str],
    folder: Path,
    *,
    network: bool,
    limit_s: float,
    output: Path | None = None,
) -> Outcome:
    """Run it to its end, or interrupt it after ``limit_s``.

    Args:
        command: program and arguments.
        env: its environment.
        folder: takes init.py's word.
        network: whether it has more than loopback.
        limit_s: what it may take.
        output: takes what it says; None: that goes where ours goes.
    """
    left = folder / "left"
    left.with_suffix(".cpu").unlink(missing_ok=True)
    full = [*namespaces(network=network), sys.executable, str(INIT), str(left), *command]
    mark = uuid.uuid4().hex
    with contextlib.ExitStack() as open_:
        out = None if output is None else open_.enter_context(output.open("ab"))
        process = open_.enter_context(
            subprocess.Popen(
                full,
                env={**env, MARK: mark},
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=None if out is None else subprocess.STDOUT,
            )
        )
        try:
            code = process.wait(limit_s)
        except subprocess.TimeoutExpired:
            code = TOO_LONG
            _interrupt(process)
        finally:
            process.kill()
            processes.end(processes.marked(MARK, mark), signal.SIGKILL, 10)
    said = left.read_text() if left.exists() else "init.py was killed: nobody knows what ran on"
    cpu = left.with_suffix(".cpu")
    return Outcome(code, said.splitlines(), float(cpu.read_text()) if cpu.exists() else 0.0)


def _interrupt(process: subprocess.Popen[bytes]) -> None:
    """As Ctrl-C: pytest ends its fixtures and says what failed so far."""
    child = psutil.Process(process.pid)
    init = child if INIT.name in " ".join(child.cmdline()[:2]) else child.children()[0]
    init.send_signal(signal.SIGINT)
    deadline = time.monotonic() + STOPPING_S
    while process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.2)
