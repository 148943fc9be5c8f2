"""Which processes are ours: known by a mark that they carry, never by name or number alone.

A mark is a variable with an id of our own invention in a process' environment, which all its
descendants inherit. That is safe where a process id was used again (a start time would tell too,
but shifts when the clock is set), and finds what a killed parent left behind.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Iterable

import psutil

KILL_WAIT_S = 10.0
_EXEC_S = 0.05


def carries(process: psutil.Process, variable: str, mark: str) -> bool:
    """Whether a process carries a mark. Zombies carry none: they have ended."""
    try:
        return bool(process.environ().get(variable) == mark)
    except (psutil.Error, OSError):
        return False


def marked(variable: str, mark: str) -> list[psutil.Process]:
    """All living processes that carry a mark."""
    return [process for process in psutil.process_iter() if carries(process, variable, mark)]


def surely_marked(variable: str, mark: str) -> list[psutil.Process]:
    """As `marked`; that there is none is only believed when it is seen three times.

    The environment of a process reads as empty for a moment while it becomes another program
    (``exec``) [tried].
    """
    for _ in range(3):
        if found := marked(variable, mark):
            return found
        time.sleep(_EXEC_S)
    return []


def end(processes: Iterable[psutil.Process], how: signal.Signals, wait_s: float) -> list[int]:
    """Signal exactly these, wait, and return the ids of those that are still there.

    psutil checks that each is still the process that we looked at before it signals.
    """
    processes = list(processes)
    for process in processes:
        try:
            process.send_signal(how)
        except psutil.NoSuchProcess:
            continue
    _, alive = psutil.wait_procs(processes, timeout=wait_s)
    return [p.pid for p in alive if p.is_running() and p.status() != psutil.STATUS_ZOMBIE]
