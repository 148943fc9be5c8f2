"""The local stack: up, down, status."""

from __future__ import annotations

import contextlib
import fcntl
import itertools
import os
import time
from collections.abc import Callable, Iterable, Iterator

from state_lib.config import Settings
from state_lib.errors import ConfigurationError, Unavailable
from state_lib.stack import airflow, ending, record, status, supervisor
from state_lib.stack.paths import Paths
from state_lib.stack.ports import require_free
from state_lib.stack.program import Program
from state_lib.stack.programs import programs
from state_lib.stack.record import Record
from state_lib.stack.settled import settled
from state_lib.stack.status import StackStatus
from state_lib.stack.unhealthy import Unhealthy, unavailable

UP_TIMEOUT_S = 120.0
POLL_S = 0.2
# If a service has ended this often while we wait for it, waiting longer is of no use.
STARTS_BEFORE_GIVING_UP = 4
# Supervisor's states of a program that it runs or restarts, and that may hold its ports.
ALIVE = frozenset({"STARTING", "RUNNING", "BACKOFF"})
Report = Callable[[str, str], None]


class Stack:
    """Kafka, state hosts and Airflow of one home, under a supervisor that outlives the caller."""

    def __init__(self, settings: Settings) -> None:
        """Bind to a home and its ports; nothing starts yet."""
        self.settings = settled(settings)
        self.paths = Paths(settings.home)
        self.programs = programs(self.settings)

    def up(
        self,
        *,
        only: Iterable[str] | None = None,
        wait: bool = True,
        timeout_s: float = UP_TIMEOUT_S,
        report: Report | None = None,
    ) -> StackStatus:
        """Start what does not run yet, in order: each priority when the one before is healthy.

        Args:
            only: Names of services; all when None.
            wait: Wait until each is healthy; else only ask the supervisor to start them.
            timeout_s: How long each service may take.
            report: Called with (service, what is waited for).

        Raises:
            PortInUse: another process listens on a port of a service that does not run.
            ConfigurationError: an unknown service, or the stack runs with other ports.
            Unavailable: services did not become healthy; the ends of their logs are in the message.
                What has started goes on, so that it can be looked at. The rest of ``only`` is
                started all the same beside one that does its work in part, as a host does of which
                one task cannot be opened.
        """
        wanted = self._select(only)
        report = report or (lambda _name, _phase: None)
        unready: list[Unhealthy] = []
        with self._locked():
            running = self._ensure_supervisor(wanted, report)
            for _, together in itertools.groupby(wanted, key=lambda program: program.priority):
                group = list(together)
                for program in group:
                    if program.name not in running:
                        report(program.name, "starting")
                        program.prepare()
                        supervisor.Client(self.paths).start(program.name)
                for program in group if wait else ():
                    report(program.name, "waiting for it to be healthy")
                    found = self._await(program, timeout_s)
                    if found is None:
                        report(program.name, "healthy")
                        continue
                    unready.append(found)
                    if not found.lives:
                        raise unavailable(unready)
        if unready:
            raise unavailable(unready)
        return self.status()

    def down(self, *, wipe: bool = False) -> list[int]:
        """End the stack and everything it started; return the process ids that were ended.

        Streams stop at a batch's edge; see `ending.end`.

        Args:
            wipe: Remove the home with all data, afterwards.

        Raises:
            Unavailable: a process survived SIGKILL (it hangs in the kernel).
            ConfigurationError: ``wipe`` of a home that Holdfast did not make.
        """
        if not self.paths.run.exists():
            if wipe:
                self.paths.wipe()
            return []
        with self._locked():
            ended = self._end(Record.read(self.paths.record))
            if wipe:
                self.paths.wipe()
            return ended

    def status(self) -> StackStatus:
        """Ask the supervisor and every running service."""
        current = Record.read(self.paths.record)
        process = current.supervisor() if current else None
        login = airflow.login(self.settings) if self.settings.airflow else None
        return status.gather(self.paths, self.programs, process.pid if process else None, login)

    def _select(self, only: Iterable[str] | None) -> list[Program]:
        names = list(only or ())
        known = [program.name for program in self.programs]
        for name in names:
            if name not in known:
                message = f"no service {name!r} in this stack; there are: {', '.join(known)}."
                raise ConfigurationError(message, service=name, known=known)
        return [p for p in self.programs if p.name in names or not names]

    def _ensure_supervisor(self, wanted: list[Program], report: Report) -> set[str]:
        """Have a supervisor, and return the names of the services that it runs already."""
        current = Record.read(self.paths.record)
        ports = {p.name: [port.port for port in p.ports] for p in self.programs}
        running: set[str] = set()
        if current and current.supervisor():
            if current.ports != ports:
                message = (
                    f"the stack in {self.paths.home} runs with other hosts or ports "
                    f"({current.ports}) than the settings say ({ports}). Run 'holdfast down' "
                    "first, or set them back."
                )
                raise ConfigurationError(message, running=current.ports, settings=ports)
            info = supervisor.Client(self.paths).info()
            running = {name for name, one in info.items() if one["statename"] in ALIVE}
        elif current:
            self._end(current)
            current = None
        for program in wanted:
            if program.name not in running:
                for port in program.ports:
                    require_free(port.host, port.port, port.setting)
        if current is None:
            report("supervisor", "starting")
            self._start_supervisor(ports)
        return running

    def _start_supervisor(self, ports: dict[str, list[int]]) -> None:
        new = Record.new(ports)
        self.paths.config.write_text(supervisor.render(self.paths, self.programs))
        new.write(self.paths.record)  # before the start, so that there is a record after a kill
        environment = airflow.environment(self.settings, os.environ)
        supervisor.start(self.paths, {**environment, record.VARIABLE: new.id})
        Record(new.id, supervisor.Client(self.paths).pid(), ports).write(self.paths.record)

    def _await(self, program: Program, timeout_s: float) -> Unhealthy | None:
        """What it is instead of healthy."""
        deadline = time.monotonic() + timeout_s
        starts: set[int] = set()
        while True:
            info = supervisor.Client(self.paths).info()[program.name]
            starts.add(int(info["start"]))
            if info["pid"] and program.healthy(float(info["start"])):
                return None
            state = supervisor.STATES.get(info["state"], "unknown")
            gave_up = state == "fatal" or len(starts) >= STARTS_BEFORE_GIVING_UP
            if gave_up or time.monotonic() > deadline:
                why = "ends as soon as it starts" if gave_up else f"is not healthy in {timeout_s} s"
                log = self.paths.log(program.name)
                return Unhealthy(program.name, why, state, log, lives=program.lives())
            time.sleep(POLL_S)

    def _end(self, current: Record | None) -> list[int]:
        if current is None:
            return []
        ended = ending.end(self.paths, self.programs, current)
        self.paths.record.unlink(missing_ok=True)
        self.paths.socket.unlink(missing_ok=True)
        return ended

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        self.paths.create()
        with self.paths.lock.open("w") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                message = (
                    f"another 'holdfast up' or 'down' is at work in {self.paths.home}. "
                    "Wait for it, then run the command again."
                )
                raise Unavailable(message, home=str(self.paths.home)) from None
            yield
