"""Restores that somebody asked this host for: only a task's owner plans and runs them."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator
from typing import Any

from state_lib.host.tasks import TaskManager
from state_lib.restore.plan import AUTO, RestorePlan
from state_lib.restore.progress import Event
from state_lib.task import StateTask

_LOOK_S = 0.5


def plan_restore(manager: TaskManager, app: str, partition: int, wanted: str = AUTO) -> RestorePlan:
    """What a restore of a task would do now.

    Raises:
        NotFound, NotOwner: as `TaskManager.task`.
        Busy: the task is opening or restoring.
        InvalidRequest: ``wanted`` is not a valid source; says why.
    """
    return manager.owned(app, partition).plan(wanted)


def run_restore(
    manager: TaskManager, app: str, partition: int, plan: RestorePlan
) -> Iterator[Event]:
    """Run a plan, and tell how it goes; the last event is ``done`` with the marker.

    A caller that leaves does not end the restore.

    Raises:
        Busy, InvalidRequest, Unavailable: see `StateTask.restore`.
    """
    task = manager.owned(app, partition)
    with task.progress.follow() as events:
        run = _Run(manager, task, plan)
        while not (run.over and events.empty()):
            try:
                yield events.get(timeout=_LOOK_S)
            except queue.Empty:
                continue
    yield run.result()


class _Run:
    """One restore in a thread of its own."""

    def __init__(self, manager: TaskManager, task: StateTask, plan: RestorePlan) -> None:
        self._manager, self._task, self._plan = manager, task, plan
        self._done: dict[str, Any] = {}
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._go, name=f"restore {task.name}", daemon=True)
        self._thread.start()

    @property
    def over(self) -> bool:
        return not self._thread.is_alive()

    def result(self) -> Event:
        self._thread.join()
        if self._error is not None:
            raise self._error
        return {"event": "done", "task": self._task.name, **self._done}

    def _go(self) -> None:
        try:
            marker = self._manager.restore(self._task, self._plan)
            self._done = {"marker": marker.to_json(), "source": self._plan.choice}
        except BaseException as error:  # noqa: BLE001 - handed to the caller
            self._error = error
