"""What Airflow's trigger and operator do, in a loop of the test's own."""

from __future__ import annotations

import contextlib
import time
from typing import Any

import psutil

from state_lib.drivers.events import Event, Name
from state_lib.drivers.identity import ID_VARIABLE
from state_lib.drivers.look import Looker, observe
from state_lib.drivers.sight import Sight
from state_lib.drivers.supervision import Supervision
from state_lib.processes import marked
from tests.chaos.cluster import Cluster
from tests.support.waiting import deadline_in


class Supervisor:
    """Launches a driver, watches it, and starts it again."""

    def __init__(self, cluster: Cluster, app: str, topic: str, **flags: Any) -> None:
        self._cluster, self._app, self._topic, self._flags = cluster, app, topic, flags
        self.looker = Looker(cluster.settings, app)
        self.process = cluster.submit(app, topic, **flags)
        self.supervision = Supervision(app, self.process.id, time.time())
        self.told: list[Event] = []

    def until(self, name: Name, timeout_s: float = 150) -> Event:
        """Look, judge and launch, until an event."""
        deadline = deadline_in(timeout_s)
        while time.monotonic() < deadline:
            _, new = self._look()
            if found := next((e for e in new if e.name == name), None):
                return found
        raise AssertionError(f"no {name} in {self.told}:\n{self.process.last_lines()}")

    def until_caught_up(self, timeout_s: float = 90) -> None:
        """The same, until nothing is left to do."""
        deadline = deadline_in(timeout_s)
        while self._look()[0].lag:
            assert time.monotonic() < deadline, self.told

    def _look(self) -> tuple[Sight, list[Event]]:
        sight, alive = observe(self.looker, self.process)
        said = [] if alive else self.process.last_lines()
        new = self.supervision.feed(sight, process=alive, now=time.time(), said=said)
        self.told += new
        if self.supervision.due:
            self.relaunch()
        time.sleep(0.5)
        return sight, new

    def names(self) -> list[Name]:
        """What was told so far."""
        return [event.name for event in self.told]

    def close(self) -> None:
        """End the driver."""
        self.process.end(0)
        self.looker.close()

    def relaunch(self) -> None:
        """Launch the driver again, as after a crash."""
        self.process = self._cluster.submit(self._app, self._topic, **self._flags)
        self.supervision.launched(self.process.id, time.time())

    def half(self, program: str) -> psutil.Process:
        """The JVM (java) or the Python that runs the job (python)."""
        workers, found = {"pyspark.daemon", "pyspark.worker"}, list[psutil.Process]()
        for process in marked(ID_VARIABLE, self.process.id):
            with contextlib.suppress(psutil.NoSuchProcess):  # one that has just ended, a zombie too
                if program in process.name() and not workers & set(process.cmdline()):
                    found.append(process)
        assert len(found) == 1, found
        return found[0]
