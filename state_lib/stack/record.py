"""Which processes are ours: known by a mark that they carry, never by name or number alone.

`up` invents an id, records it with the supervisor's process id, and gives it to the supervisor as
an environment variable, which all descendants inherit. A process is ours if its environment has
this id. That is safe where a process id was used again (a start time would tell too, but shifts
when the clock is set), and finds services that a killed supervisor left behind.
"""

from __future__ import annotations

import json
import signal
import uuid
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Self

import psutil

VARIABLE = "HOLDFAST_STACK_ID"
KILL_WAIT_S = 10.0


@dataclass(frozen=True)
class Record:
    """A started stack.

    Attributes:
        id: The mark.
        pid: The supervisor's process id, 0 until it is known.
        ports: Port by service, to notice that settings changed under a running stack.
    """

    id: str
    pid: int
    ports: dict[str, list[int]]

    @classmethod
    def new(cls, ports: dict[str, list[int]]) -> Self:
        """A record for a stack that is about to start."""
        return cls(uuid.uuid4().hex, 0, ports)

    @classmethod
    def read(cls, path: Path) -> Self | None:
        """The record on disk, None if there is none that can be read."""
        try:
            return cls(**json.loads(path.read_text()))
        except (FileNotFoundError, json.JSONDecodeError, TypeError):
            return None

    def write(self, path: Path) -> None:
        """Write as one: a reader sees the old one or the new one."""
        fresh = path.with_suffix(".new")
        fresh.write_text(json.dumps(asdict(self)))
        fresh.replace(path)

    def supervisor(self) -> psutil.Process | None:
        """The supervisor if it is alive and ours."""
        try:
            process = psutil.Process(self.pid) if self.pid else None
        except psutil.NoSuchProcess:
            return None
        return process if process and self.is_ours(process) else None

    def processes(self) -> list[psutil.Process]:
        """All living processes of the stack, the supervisor included."""
        return [process for process in psutil.process_iter() if self.is_ours(process)]

    def is_ours(self, process: psutil.Process) -> bool:
        """Whether the process carries this stack's mark. Zombies carry none: they have ended."""
        try:
            return bool(process.environ().get(VARIABLE) == self.id)
        except (psutil.Error, OSError):
            return False


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
