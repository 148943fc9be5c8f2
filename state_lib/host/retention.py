"""Looks now and then whether brokers could delete what live windows need: see `RetentionGuard`."""

from __future__ import annotations

import threading
import time

import structlog

from state_lib.errors import HoldfastError
from state_lib.host.tasks import TaskManager
from state_lib.task import StateTask

log = structlog.get_logger(__name__)
EVERY_S = 900.0
"""Between looks at one task; the margin that is kept is half a day."""
AGAIN_S = 30.0
"""After a look that failed."""
_STEP_S = 1.0


class RetentionWatch:
    """A thread of its own: it waits for Kafka, and flushes must not.

    A task is looked at soon after it was opened. Commits look as well; but while a driver is down
    nothing is committed, and the windows grow older all the same.
    """

    def __init__(self, manager: TaskManager, every_s: float = EVERY_S) -> None:
        self._manager, self._every_s = manager, every_s
        self._due: dict[StateTask, float] = {}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="retention", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """End; a look that is under way is not waited for."""
        self._stop.set()

    def _run(self) -> None:
        while not self._stop.wait(min(_STEP_S, self._every_s)):
            tasks = [t for t in list(self._manager.tasks.values()) if t.is_open]
            self._due = {task: at for task, at in self._due.items() if task in tasks}
            for task in tasks:
                if not self._stop.is_set() and time.monotonic() >= self._due.get(task, 0.0):
                    self._due[task] = time.monotonic() + self._look(task)

    def _look(self, task: StateTask) -> float:
        """One look; returns in how many seconds the next one is due."""
        try:
            task.keep_retention()
        except HoldfastError as error:
            log.warning("could not look at retention", task=task.name, why=error.message)
            return AGAIN_S
        except Exception:  # the thread goes on for the other tasks
            log.exception("could not look at retention", task=task.name)
            return AGAIN_S
        return self._every_s
