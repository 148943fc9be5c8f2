"""Launches a driver so that it outlives its launcher, finds it again, and ends it."""

from __future__ import annotations

import errno
import os
import signal
import socket
import subprocess
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self

import psutil
import structlog

from state_lib import processes
from state_lib.drivers.identity import ID_VARIABLE, LOG_VARIABLE
from state_lib.errors import ConfigurationError, HoldfastError, Unavailable
from state_lib.protocol.marker import now_ms
from state_lib.times import iso

log = structlog.get_logger(__name__)
LAUNCHED = "launched"
"""The event of a driver's log that its launcher writes: what follows is of this driver."""
_LAUNCH = f'{{"event":"{LAUNCHED}"'
_NOISE = (
    "WARNING: Using incubator modules",
    "WARNING: A terminally deprecated method",
    "WARNING: sun.misc.Unsafe",
    "WARNING: Please consider reporting this to the maintainers",
    "Picked up JAVA_TOOL_OPTIONS",
    "NOTE: Picked up JDK_JAVA_OPTIONS",
)
"""Lines that every JVM writes, and that tell nothing."""
TAIL_BYTES = 64 << 10
_LOOK_S = 0.2
SAME_START_S = 5.0
"""Between what the kernel and what the launcher say of a start: ids are not used again so soon."""
_ENDED = (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD)
_TO_CORRECT = {
    errno.ENOENT,
    errno.EACCES,
    errno.EPERM,
    errno.ENOEXEC,
    errno.EEXIST,
    errno.ENOTDIR,
    errno.EISDIR,
    errno.EROFS,
}
"""A launch that fails so fails again."""
_launched: dict[str, subprocess.Popen[bytes]] = {}
"""Children of this process, so that those that ended are reaped."""


@dataclass(frozen=True)
class DriverProcess:
    """One launched driver, wherever it is kept in writing.

    Attributes:
        id: its mark, in the environment of all its processes: launcher, JVM, Python, workers.
        app: the application that it runs.
        host: the machine that it was launched on.
        pid: of what was launched: spark-submit, or the job itself.
        log: path of its log.
        started_at: wall time (ms).
    """

    id: str
    app: str
    host: str
    pid: int
    log: str
    started_at: int

    def to_json(self) -> dict[str, Any]:
        """As plain data."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """The inverse of `to_json`."""
        return cls(**data)

    @property
    def here(self) -> bool:
        """Whether it was launched on this machine."""
        return self.host == socket.gethostname()

    def alive(self) -> bool | None:
        """Whether any process of it lives; None if that cannot be seen from here.

        That is on another machine, and if its processes belong to another user: then its
        membership in Kafka's group shows it.

        The environment of a process reads as empty for a moment while it becomes another program
        (``exec``), as spark-submit does twice [tried]: that is no death.
        """
        if not self.here:
            return None
        child = _launched.get(self.id)
        if child is not None and child.poll() is None:
            return True
        try:
            launched = psutil.Process(self.pid)
            environment = launched.environ()
            same_start = abs(launched.create_time() - self.started_at / 1000) < SAME_START_S
            becoming = not environment and same_start and launched.status() not in _ENDED
            if environment.get(ID_VARIABLE) == self.id or becoming:
                return True
        except psutil.AccessDenied:
            return None
        except (psutil.Error, OSError):
            pass  # the launched process has ended, but its children may live
        return bool(processes.surely_marked(ID_VARIABLE, self.id))

    def end(self, timeout_s: float = 90) -> None:
        """Let the job stop at a batch's edge; kill what is left after ``timeout_s``.

        SIGTERM goes to the Python that runs the job and not to the JVM: that would end at once, in
        the middle of a batch. Returns when no process is left; does nothing on another machine.

        Raises:
            Unavailable: a process survived SIGKILL (it hangs in the kernel).
        """
        if not self.here:
            return
        asked: set[psutil.Process] = set()
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            living = processes.surely_marked(ID_VARIABLE, self.id)
            if not living:
                return
            jobs = [p for p in living if _stops_at_an_edge(p)]
            # Without a job the JVM is still starting; after a job it ends by itself.
            for process in set(jobs or (() if asked else living)) - asked:
                _signal(process, signal.SIGTERM)
                asked.add(process)
            if child := _launched.get(self.id):
                child.poll()
            time.sleep(_LOOK_S)
        log.warning("the driver did not stop in time; killing it", app=self.app, seconds=timeout_s)
        left = processes.end(
            processes.surely_marked(ID_VARIABLE, self.id), signal.SIGKILL, processes.KILL_WAIT_S
        )
        if left:
            raise Unavailable(
                f"processes {left} of the driver of {self.app!r} do not end even on SIGKILL; look "
                "at them with 'ps'",
                pids=left,
            )

    def last_lines(self, lines: int = 500) -> list[str]:
        """The end of its log since it was launched; nothing on another machine.

        After a driver's last words the JVM may write some pages of what it left undone.
        """
        if not self.here:
            return []
        try:
            with Path(self.log).open("rb") as file:
                file.seek(max(0, file.seek(0, os.SEEK_END) - TAIL_BYTES))
                text = file.read()
        except OSError:
            return []
        said = text.decode(errors="replace").splitlines()
        launches = [n for n, line in enumerate(said) if line.startswith(_LAUNCH)]
        mine = [n for n in launches if said[n].startswith(_launch_line(self.id))]
        start = mine[-1] + 1 if mine else 0  # else it is before these lines, or not ours
        own = said[start : next((n for n in launches if n >= start), None)]
        return [line for line in own if not line.startswith(_NOISE)][-lines:]


def launch(
    app: str,
    command: Sequence[str],
    *,
    env: Mapping[str, str],
    log: Path,
    cwd: Path | None = None,
    mark: str | None = None,
) -> DriverProcess:
    """Start a driver in a session of its own, so that no signal meant for its launcher reaches it.

    Args:
        app: the application that it will run.
        command: program and arguments; a path with a slash is taken from ``cwd``.
        env: the whole environment of the process; the driver's id and log are set on top.
        log: a line about the launch, standard output and error are appended to it. Its folder is
            made.
        cwd: working directory; this process' when None.
        mark: the process' id, of a launcher that has written it down before; a new one when None.

    Raises:
        ConfigurationError: the program, the job file that the command names, or the log's folder
            does not exist or may not be used.
        Unavailable: the machine cannot do it now: memory, processes, files, disk.
    """
    for argument in command[1:]:
        is_job = argument.endswith(".py") and "://" not in argument and "," not in argument
        if is_job and not (cwd or Path.cwd()).joinpath(argument).is_file():
            raise ConfigurationError(
                f"the driver of {app!r} cannot start: job file {argument!r} does not exist "
                f"(working directory: {cwd or Path.cwd()}). Correct the path",
                path=argument,
            )
    log = log.absolute()
    mark = mark or uuid.uuid4().hex
    try:
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("ab") as out:
            out.write(f'{_launch_line(mark)},"timestamp":"{iso(now_ms())}"}}\n'.encode())
            out.flush()
            child = subprocess.Popen(  # noqa: S603 - the operator's own command
                list(command),
                env={**env, ID_VARIABLE: mark, LOG_VARIABLE: str(log)},
                cwd=cwd,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
    except OSError as error:
        raise _not_started(app, command[0], error) from error
    _launched[mark] = child
    return DriverProcess(mark, app, socket.gethostname(), child.pid, str(log), now_ms())


def _launch_line(mark: str) -> str:
    """Its begin, in the form of the others of the log."""
    return f'{_LAUNCH},"driver":"{mark}"'


def _not_started(app: str, program: str, error: OSError) -> HoldfastError:
    what = f"{str(error.filename or program)!r}: {error.strerror}"
    if error.errno in _TO_CORRECT:
        return ConfigurationError(
            f"the driver of {app!r} cannot start: {what}. A program must be installed, and be on "
            "the PATH of this process; a log's folder must be writable",
            program=program,
        )
    return Unavailable(
        f"the driver of {app!r} cannot start now: {what}. It is tried again; look at this "
        "machine's memory, disk and limits",
        program=program,
    )


def _stops_at_an_edge(process: psutil.Process) -> bool:
    """Whether it is the Python that runs the job: not the JVM, nor what that starts.

    Those are Spark's Python workers, and small programs that Hadoop starts for each file of a
    checkpoint, such as ``readlink``: they are part of the batch that is to be finished.
    """
    try:
        command, names = process.cmdline(), {Path(process.exe()).name}
    except psutil.Error:
        return False
    names |= {Path(command[0]).name} if command else set()  # a link may have any name
    others = {"pyspark.daemon", "pyspark.worker"} & set(command) | {"java"} & names
    return not others and any(name.startswith(("python", "pypy")) for name in names)


def _signal(process: psutil.Process, how: signal.Signals) -> None:
    try:
        process.send_signal(how)
    except psutil.NoSuchProcess:
        return
