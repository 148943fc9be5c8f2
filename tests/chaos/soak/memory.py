"""Memory of each process of the stack, all the time."""

from __future__ import annotations

import re
import time
from collections import defaultdict
from collections.abc import Iterator

import psutil

from state_lib.errors import Unavailable
from state_lib.stack import supervisor
from tests.chaos.cluster import JOB, Cluster
from tests.chaos.soak.helpers import Repeated
from tests.chaos.soak.lives import Life, Row, row_of

EVERY_S = 5.0
MIB = 1 << 20
_HEAP = re.compile(r"-Xmx(\d+)([mgMG])")


class Memory:
    """Samples all processes of a stack, drivers included."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self.lives: dict[tuple[int, float], Life] = {}

    def sampling(self) -> Repeated:
        """All the time."""
        return Repeated(EVERY_S, self.sample)

    def now(self) -> dict[str, float]:
        """What each name had at the last look, all of its processes together (MiB)."""
        recent, out = time.time() - 2 * EVERY_S, defaultdict[str, float](float)
        for life in list(self.lives.values()):
            if life.samples[-1][0] > recent:
                out[life.name] += life.samples[-1][1]
        return dict(out)

    def rows(self, since: float) -> list[Row]:
        """By name; slopes are of the time from then on (wall time, s)."""
        by_name = defaultdict[str, list[Life]](list)
        for life in list(self.lives.values()):
            by_name[life.name].append(life)
        return [row_of(name, lives, since) for name, lives in sorted(by_name.items())]

    def sample(self) -> None:
        """One look."""
        at, services = time.time(), self._services()
        parents: dict[int, int] = {}
        seen: list[tuple[psutil.Process, list[str], float, float]] = []
        for process in psutil.process_iter():
            try:
                with process.oneshot():
                    rss, began = process.memory_info().rss / MIB, process.create_time()
                    parents[process.pid] = process.ppid()
                    seen.append((process, process.cmdline(), rss, began))
            except psutil.Error:
                continue
        for process, command, rss, began in seen:
            if name := _name(process.pid, command, services, parents):
                life = self.lives.get((process.pid, began))
                if life is not None and life.name == name:
                    life.samples.append((at, rss))
                else:  # a new one, or it became another program
                    new = Life(name, began, _heap(command), [(at, rss)])
                    self.lives[process.pid, began] = new

    def _services(self) -> dict[int, str]:
        try:
            info = supervisor.Client(self._cluster.stack.paths).info()
        except Unavailable:
            return {}
        return {int(one["pid"]): name for name, one in info.items() if one["pid"]}


def _name(
    pid: int, command: list[str], services: dict[int, str], parents: dict[int, int]
) -> str | None:
    """What a process is; None if it is none of ours."""
    if any(str(JOB) in word for word in command):
        return "driver's JVM" if "java" in command[0] else "driver"
    if {"pyspark.daemon", "pyspark.worker"} & set(command):
        return "Spark's workers"
    if pid in services:
        return services[pid]
    above = next((services[one] for one in _ancestors(pid, parents) if one in services), None)
    return None if above is None else f"{above}: children"


def _ancestors(pid: int, parents: dict[int, int]) -> Iterator[int]:
    while (pid := parents.get(pid, 0)) > 1:
        yield pid


def _heap(command: list[str]) -> float | None:
    found = [m for word in command if (m := _HEAP.fullmatch(word))]
    if not found:
        return None
    number, unit = found[-1].groups()
    return float(number) * (1024 if unit in "gG" else 1)
