"""Process 1 of a stage: runs one command, reaps, forwards signals, and says what it left running.

    init.py LEFT COMMAND…

What they took of the cores, in seconds, goes to the file LEFT with ``.cpu`` behind it. Whatever
still runs `GRACE_S` after the command has ended is written to the file LEFT, a line each, and
ended. Inside a PID namespace (see isolate.py) that is every other process; outside of one it is
those that carry the stage's mark, which children inherit. The exit code is the command's.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import resource
import signal
import socket
import struct
import sys
import time
from pathlib import Path
from types import FrameType

import psutil
from isolate import MARK

from state_lib import processes

GRACE_S = 20.0
_PR_SET_CHILD_SUBREAPER = 36
_SIOCGIFFLAGS, _SIOCSIFFLAGS, _IFF_UP = 0x8913, 0x8914, 1


def raise_loopback() -> None:
    """As ``ip link set lo up``, which is not installed everywhere."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        asked = fcntl.ioctl(any_socket, _SIOCGIFFLAGS, struct.pack("16sh22x", b"lo", 0))
        flags = struct.unpack("16sh22x", asked)[1] | _IFF_UP
        fcntl.ioctl(any_socket, _SIOCSIFFLAGS, struct.pack("16sh22x", b"lo", flags))


def reap(child: int, *, wait: bool) -> int | None:
    """Reap whatever has ended; returns the exit code once the child is among it."""
    while True:
        try:
            pid, status = os.waitpid(-1, 0 if wait else os.WNOHANG)
        except ChildProcessError:
            return None
        if pid == child:
            return os.waitstatus_to_exitcode(status)
        if pid == 0:
            return None


def others() -> list[psutil.Process]:
    """What belongs to this stage, this process apart."""
    if os.getpid() == 1:
        found = list(psutil.process_iter())
    else:
        found = processes.marked(MARK, os.environ[MARK])
    return [p for p in found if p.pid != os.getpid() and alive(p)]


def alive(process: psutil.Process) -> bool:
    """Whether it runs; zombies do not."""
    try:
        return bool(process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def said(process: psutil.Process) -> str:
    """A line about a process."""
    try:
        return f"{process.pid}: {' '.join(process.cmdline())[:300]}"
    except psutil.Error:
        return f"{process.pid}: {process.name()}"


def main() -> int:
    """See the module."""
    left, command = Path(sys.argv[1]), sys.argv[2:]
    if os.getpid() == 1:
        raise_loopback()
    elif sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    child = os.posix_spawnp(command[0], command, os.environ, setpgroup=0)

    def forward(number: int, _frame: FrameType | None) -> None:
        os.killpg(child, number)

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, forward)
    code = None
    while code is None:
        code = reap(child, wait=True)
    deadline = time.monotonic() + GRACE_S
    while (living := others()) and time.monotonic() < deadline:
        reap(child, wait=False)
        time.sleep(0.1)
    left.write_text("".join(f"{said(p)}\n" for p in living))
    processes.end(living, signal.SIGTERM, 5)
    processes.end(others(), signal.SIGKILL, 5)
    reap(child, wait=False)
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    left.with_suffix(".cpu").write_text(f"{used.ru_utime + used.ru_stime:.0f}")
    return code if code >= 0 else 128 - code


if __name__ == "__main__":
    sys.exit(main())
