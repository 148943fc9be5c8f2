"""Which processes are ours: those with the mark that `up` invents (see `state_lib.processes`).

It is recorded with the supervisor's process id, and given to the supervisor as an environment
variable: so services that a killed supervisor left behind are found as well.
"""

from __future__ import annotations

import json
import uuid
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Self

import psutil

from state_lib.processes import carries, marked

VARIABLE = "HOLDFAST_STACK_ID"


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
        return marked(VARIABLE, self.id)

    def is_ours(self, process: psutil.Process) -> bool:
        """Whether the process carries this stack's mark."""
        return carries(process, VARIABLE, self.id)
