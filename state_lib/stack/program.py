"""One service of the stack, as data: what supervisor runs and what `up` waits for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Port:
    """A port that a program listens on, and the setting that changes it."""

    host: str
    port: int
    setting: str


@dataclass(frozen=True)
class Program:
    """One service.

    Attributes:
        name: Its name for people and for supervisor.
        priority: Services start in rising order, those of one priority together, and stop in
            falling order.
        ports: What it listens on; the first is the one to show.
        stop_wait_s: How long it may take to stop after SIGTERM before SIGKILL.
        command: Renders the command line; may fetch what it needs first.
        prepare: Done before each start, such as formatting a new broker's data directory; quick
            where it was done before.
        healthy: Asks the running service, which started at this Unix time; never raises.
        lives: Asks whether it does its work in part, so that others may start; never raises.
    """

    name: str
    priority: int
    ports: tuple[Port, ...]
    stop_wait_s: int
    command: Callable[[], list[str]]
    prepare: Callable[[], None]
    healthy: Callable[[float], bool]
    lives: Callable[[], bool] = lambda: False
