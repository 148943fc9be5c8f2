"""``python -m state_lib.snapshots.aside DIRECTORY``: `inspect` in a process that makes way."""

from __future__ import annotations

import contextlib
import signal
import time

import psutil

_WORK_S, _REST_S = 0.005, 0.020
_BUSY, _FREE, _SPAN_S = 0.1, 0.33, 0.4
"""Parts of the machine's time, looked at over so many seconds of all cores together."""


def make_way() -> None:
    """Rest four fifths of the time while others are at work and less than a third is idle.

    Others: processes of usual priority.

    Priority alone is not enough: a commit has many hops between processes, each of which waits for
    a time slice, and two threads of a core slow each other [tried: digests of 10 M entries at the
    lowest priority stalled commits for half a second].
    """
    before = psutil.cpu_times()

    def look(*_: object) -> None:
        nonlocal before
        with contextlib.suppress(OSError, psutil.Error):  # that could rise at any line of ours
            now = psutil.cpu_times()
            spent = sum(now) - sum(before)
            usual = now.user + now.system - before.user - before.system
            if usual > _BUSY * spent and now.idle - before.idle < _FREE * spent:
                time.sleep(_REST_S)
            if spent > _SPAN_S:
                before = now

    signal.signal(signal.SIGPROF, look)
    signal.setitimer(signal.ITIMER_PROF, _WORK_S, _WORK_S)


def main() -> None:
    """See the module."""
    make_way()
    from state_lib.snapshots.inspect import main as look  # noqa: PLC0415 - heavy: it rests, too

    try:
        look()
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)  # at exit Python would let it end the process


if __name__ == "__main__":
    main()
