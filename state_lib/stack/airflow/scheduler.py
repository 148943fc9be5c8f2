"""``python -m state_lib.stack.airflow.scheduler``: Airflow's scheduler, after some cleaning.

LocalExecutor's workers outlive a scheduler that is killed: they wait for ever at a pipe into which
nobody writes, 20 MB each. Those that run a task are spared: it may yet succeed.
"""

from __future__ import annotations

import os
import sys

import psutil

from state_lib import processes
from state_lib.stack.record import VARIABLE

SERVICE_VARIABLE = "SUPERVISOR_PROCESS_NAME"  # supervisor's own, in all descendants of a service


def idle_workers(stack: str, service: str) -> list[psutil.Process]:
    """Workers of schedulers that are gone: in the session of one, without parent and children."""
    found = []
    for process in processes.marked(VARIABLE, stack):
        try:
            session = os.getsid(process.pid)
            if (
                process.environ().get(SERVICE_VARIABLE) == service
                and not _is_alive(session)
                and not process.children()
                and os.getsid(process.ppid()) != session
            ):
                found.append(process)
        except (psutil.Error, OSError):
            continue  # it has ended meanwhile
    return found


def main() -> None:
    """End the idle workers of former schedulers, and become Airflow's scheduler."""
    stack, service = os.environ.get(VARIABLE), os.environ.get(SERVICE_VARIABLE)
    for process in idle_workers(stack, service) if stack and service else ():
        process.kill()  # they have inherited that SIGTERM is ignored
    os.execv(  # noqa: S606 - our own command
        sys.executable, [sys.executable, "-m", "airflow", "scheduler", *sys.argv[1:]]
    )


def _is_alive(pid: int) -> bool:
    return psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE


if __name__ == "__main__":
    main()
