"""Restores and repairs that somebody asked this host for: only a task's owner runs them."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from state_lib.host.tasks import TaskManager
from state_lib.protocol.wire import ALIVE, BEAT_S
from state_lib.restore.plan import AUTO, RestorePlan
from state_lib.restore.progress import Event
from state_lib.task import StateTask
from state_lib.task.past import Past
from state_lib.task.repairing import loss_of

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
    """Run a plan; yields its events, the last of which is ``done`` with the marker.

    A caller that leaves does not end the restore. Whoever asks for the same plan meets it.

    Raises:
        Busy, PlanStale, Unavailable: see `StateTask.restore`.
    """
    task = manager.owned(app, partition)

    def restore() -> dict[str, Any]:
        marker = manager.restores.start(task, plan).result()
        return {"marker": marker.to_json(), "source": plan.choice}

    return _told(task, restore)


def start_restore(
    manager: TaskManager, app: str, partition: int, plan: RestorePlan
) -> dict[str, Any]:
    """Begin what `run_restore` does, or find it; see `state_lib.host.restore_jobs.Job.to_json`.

    Raises:
        NotFound, NotOwner: as `TaskManager.task`.
        Busy: another plan runs.
    """
    return manager.restores.start(manager.owned(app, partition), plan).to_json()


def run_past(manager: TaskManager, app: str, partition: int, past: Past) -> Iterator[Event]:
    """Restore a task to the past; yields its events, the last of which is ``done`` with the marker.

    A caller that leaves does not end it.

    Raises:
        Busy, Superseded, InvalidRequest, Unavailable: see `StateTask.go_back`.
    """
    task = manager.owned(app, partition)

    def go_back() -> dict[str, Any]:
        return {"marker": manager.go_back(task, past).to_json(), "source": past.snapshot}

    return _told(task, go_back)


def fetch_past(manager: TaskManager, app: str, partition: int, snapshot: str) -> Iterator[Event]:
    """Fetch a snapshot to its host for `run_past`; the task goes on meanwhile.

    Raises:
        Busy, InvalidRequest, Unavailable: see `StateTask.fetch_past`.
    """
    task = manager.owned(app, partition)

    def fetch() -> dict[str, Any]:
        task.fetch_past(snapshot)
        return {"source": snapshot}

    return _told(task, fetch)


def find_loss(manager: TaskManager, app: str, partition: int) -> dict[str, Any]:
    """What a task's topics lost, as `state_lib.task.loss.Loss` in JSON.

    Raises:
        NotFound, NotOwner: as `TaskManager.task`.
        Busy: the task is opening or restoring.
    """
    # Not `task`: learning an application would fence its owner.
    return loss_of(manager.owned(app, partition)).to_json()


def run_repair(
    manager: TaskManager, app: str, partition: int, stores: Sequence[str] | None
) -> Iterator[Event]:
    """Rewrite lost topics; yields its events, the last of which is ``done`` with the marker.

    A caller that leaves does not end it.

    Raises:
        Busy, NotRepairable, Unavailable, LogLost: see `repair_task`.
    """
    task = manager.owned(app, partition, learn=True)
    return _told(task, lambda: {"marker": manager.repair(task, stores).to_json()})


def _told(task: StateTask, action: Callable[[], dict[str, Any]]) -> Iterator[Event]:
    with task.progress.follow() as events:
        run = _Run(task, action)
        yield ALIVE
        told_at = time.monotonic()
        while not (run.over and events.empty()):
            try:
                event = events.get(timeout=min(_LOOK_S, BEAT_S))
            except queue.Empty:
                if time.monotonic() - told_at < BEAT_S:
                    continue
                event = ALIVE
            yield event
            told_at = time.monotonic()
    yield run.result()


class _Run:
    """One restore or repair in a thread of its own."""

    def __init__(self, task: StateTask, action: Callable[[], dict[str, Any]]) -> None:
        self._task, self._action = task, action
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
            self._done = self._action()
        except BaseException as error:  # noqa: BLE001 - handed to the caller
            self._error = error
