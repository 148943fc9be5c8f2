"""What runs and how it is, as data."""

from __future__ import annotations

import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from typing import Any, Literal

from state_lib.errors import Unavailable
from state_lib.stack.airflow import Login
from state_lib.stack.paths import Paths
from state_lib.stack.program import Program
from state_lib.stack.supervisor import STATES, Client

Health = Literal["healthy", "unhealthy", "down"]


@dataclass(frozen=True)
class ServiceStatus:
    """One service.

    Attributes:
        name: Its name.
        state: Supervisor's word, such as ``running`` or ``backoff``; ``stopped`` without one.
        pid: Process id, None when it does not run.
        uptime_s: Whole seconds since it started, None when it does not run.
        ports: What it listens on.
        health: What it answered to a question just now; ``down`` when it does not run.
        log: Path of its log.
    """

    name: str
    state: str
    pid: int | None
    uptime_s: int | None
    ports: tuple[int, ...]
    health: Health
    log: str


@dataclass(frozen=True)
class StackStatus:
    """The stack.

    Attributes:
        home: Its directory.
        supervisor_pid: None when there is no supervisor, so that nothing runs.
        services: In starting order.
        airflow: How to get into Airflow, None when the stack has none.
    """

    home: str
    supervisor_pid: int | None
    services: tuple[ServiceStatus, ...]
    airflow: Login | None

    @property
    def healthy(self) -> bool:
        """Whether every service is."""
        return all(service.health == "healthy" for service in self.services)

    def __getitem__(self, name: str) -> ServiceStatus:
        """A service by name."""
        return next(service for service in self.services if service.name == name)

    def to_json(self) -> dict[str, Any]:
        """For ``holdfast status --json``."""
        return {**asdict(self), "healthy": self.healthy}


def gather(
    paths: Paths,
    programs: Iterable[Program],
    supervisor_pid: int | None,
    airflow: Login | None,
) -> StackStatus:
    """Ask the supervisor, then all running services at once."""
    known: dict[str, dict[str, Any]] = {}
    if supervisor_pid is not None:
        try:
            known = Client(paths).info()
        except Unavailable:
            supervisor_pid = None  # it ended between the two requests
    with ThreadPoolExecutor(8) as pool:
        services = pool.map(lambda one: _service(paths, one, known.get(one.name, {})), programs)
        return StackStatus(str(paths.home), supervisor_pid, tuple(services), airflow)


def _service(paths: Paths, program: Program, info: dict[str, Any]) -> ServiceStatus:
    pid = int(info.get("pid", 0)) or None
    health: Health = "down"
    if pid is not None:
        health = "healthy" if program.healthy(float(info["start"])) else "unhealthy"
    return ServiceStatus(
        name=program.name,
        state=STATES.get(info.get("state", 0), "unknown"),
        pid=pid,
        uptime_s=max(0, int(time.time()) - int(info["start"])) if pid else None,
        ports=tuple(port.port for port in program.ports),
        health=health,
        log=str(paths.log(program.name)),
    )
