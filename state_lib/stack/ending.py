"""Ends a stack: what launches streams, then the streams at a batch's edge, then what they need."""

from __future__ import annotations

import contextlib
import itertools
import signal
import socket
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor

import psutil

from state_lib import processes
from state_lib.drivers.identity import ID_VARIABLE
from state_lib.drivers.process import DriverProcess
from state_lib.errors import Unavailable
from state_lib.stack import airflow, supervisor
from state_lib.stack.paths import Paths
from state_lib.stack.program import Program
from state_lib.stack.record import Record

ORPHAN_WAIT_S = 15.0
DRIVER_WAIT_S = 90.0
POLL_S = 0.2


def end(paths: Paths, programs: Sequence[Program], current: Record) -> list[int]:
    """End everything that carries the stack's mark; return the process ids.

    Services stop in falling order of priority. Drivers that Airflow has launched are in sessions of
    their own: they are asked to stop at a batch's edge once nobody would start them again, and
    while hosts and broker still serve them. What is left then, or was left by a supervisor that
    had been killed, gets SIGTERM and, after `ORPHAN_WAIT_S`, SIGKILL.

    Raises:
        Unavailable: a process survived SIGKILL (it hangs in the kernel).
    """
    ours = current.processes()
    if process := current.supervisor():
        launchers = [p for p in programs if p.priority >= airflow.PRIORITY]
        with contextlib.suppress(Unavailable):  # it is ending just now; the marks show what is left
            _stop(paths, launchers)
            _end_drivers(current.processes())
            _stop(paths, [p for p in programs if p not in launchers])
        patience = sum(program.stop_wait_s for program in programs) + ORPHAN_WAIT_S
        processes.end([process], signal.SIGTERM, patience)
    if left := processes.end(current.processes(), signal.SIGTERM, ORPHAN_WAIT_S):
        left = processes.end(current.processes(), signal.SIGKILL, processes.KILL_WAIT_S)
    if left:
        message = f"processes {left} do not end even on SIGKILL; look at them with 'ps'."
        raise Unavailable(message, pids=left)
    return [one.pid for one in ours]


def _stop(paths: Paths, programs: Iterable[Program]) -> None:
    """Stop those of one priority at the same time: supervisor would take one after the other."""
    client = supervisor.Client(paths)
    falling = sorted(programs, key=lambda program: -program.priority)
    for _, together in itertools.groupby(falling, key=lambda program: program.priority):
        group = list(together)
        info = client.info()
        names = [one.name for one in group if one.name in info]
        for name in names:
            client.stop(name)
        deadline = time.monotonic() + max(p.stop_wait_s for p in group) + ORPHAN_WAIT_S
        while any(client.info()[name]["pid"] for name in names) and time.monotonic() < deadline:
            time.sleep(POLL_S)


def _end_drivers(candidates: Iterable[psutil.Process]) -> None:
    marks = {mark for process in candidates if (mark := _driver_of(process))}
    drivers = [DriverProcess(mark, "", socket.gethostname(), 0, "", 0) for mark in marks]
    if drivers:
        with ThreadPoolExecutor(len(drivers)) as pool:
            list(pool.map(lambda driver: driver.end(DRIVER_WAIT_S), drivers))


def _driver_of(process: psutil.Process) -> str | None:
    try:
        return process.environ().get(ID_VARIABLE)
    except (psutil.Error, OSError):
        return None
