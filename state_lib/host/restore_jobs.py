"""Restores that somebody asked this host for: in the background, one at a time for each task.

A few run side by side, as a host opens tasks by itself: a lost disk with hundreds of tasks must not
take all memory, and each looks at the disk that those before it have left. A request for a plan
that runs or waits for its turn, or that has ended well, finds that restore and begins no other.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import structlog

from state_lib.errors import Busy, HoldfastError, NotFound
from state_lib.protocol.marker import Marker, now_ms
from state_lib.restore.plan import RestorePlan
from state_lib.restore.progress import Event
from state_lib.task import StateTask

log = structlog.get_logger(__name__)
_AT_ONCE = 4
Restore = Callable[[StateTask, RestorePlan], Marker]


class Job:
    """One restore, from request to end, with its progress for clients."""

    def __init__(self, task: StateTask, plan: RestorePlan) -> None:
        self.task, self.plan = task, plan
        self.started_at, self._began = now_ms(), time.monotonic()
        self._seconds: float | None = None
        self._stores: dict[str, dict[str, int]] = {}
        self._fetched: dict[str, int] | None = None
        self._lock = threading.Lock()
        self._events: queue.SimpleQueue[Event] = queue.SimpleQueue()
        self.ended = threading.Event()
        self.marker: Marker | None = None
        self.error: BaseException | None = None

    @property
    def state(self) -> str:
        """``running``, ``done`` or ``failed``."""
        if not self.ended.is_set():
            return "running"
        return "done" if self.error is None else "failed"

    def run(self, restore: Restore) -> None:
        """Do it, and remember how it ended."""
        with ExitStack() as stack:
            self._events = stack.enter_context(self.task.progress.follow())
            try:
                self.marker = restore(self.task, self.plan)
            except BaseException as error:  # noqa: BLE001 - told to whoever asks
                self.error = error
                log.warning("no restore", task=self.task.name, why=str(error))
            self._drain()
            self._seconds = time.monotonic() - self._began
            self.ended.set()

    def result(self) -> Marker:
        """The marker, once it has ended; raises what ended it."""
        self.ended.wait()
        if self.error is not None:
            raise self.error
        if self.marker is None:
            raise AssertionError
        return self.marker

    def to_json(self) -> dict[str, Any]:
        """As it goes over the wire; ``started_at`` in ms, ``fetched`` in bytes."""
        self._drain()
        error = self.error
        if error is not None and not isinstance(error, HoldfastError):
            error = HoldfastError(f"the restore of {self.task.name} failed: {error!r}")
        return {
            "task": self.task.name,
            "plan": self.plan.id,
            "source": self.plan.choice,
            "state": self.state,
            "started_at": self.started_at,
            "seconds": round(self._seconds or time.monotonic() - self._began, 3),
            "fetched": self._fetched,
            "stores": {name: dict(one) for name, one in self._stores.items()},
            "marker": self.marker and self.marker.to_json(),
            "error": error and error.to_wire(),
        }

    def _drain(self) -> None:
        with self._lock:
            while not self._events.empty():
                self._heed(self._events.get())

    def _heed(self, event: Event) -> None:
        match event["event"]:
            case "fetch":
                self._fetched = {"done": event["done"], "total": event["total"]}
            case "start":
                start, end = event["start"], event["end"]
                begun = {"start": start, "end": end, "offset": start, "records": 0}
                self._stores[event["store"]] = begun
            case "batch" if one := self._stores.get(event["store"]):
                one["records"] += event["records"]
                one["offset"] = event["offset"]
            case "end" if one := self._stores.get(event["store"]):
                one["offset"] = one["end"]


class RestoreJobs:
    """Of one host.

    Args:
        restore: runs a plan for a task of this host.
    """

    def __init__(self, restore: Restore) -> None:
        self._restore = restore
        self._lock = threading.Lock()
        self._jobs: dict[str, Job] = {}
        self._turns = threading.BoundedSemaphore(_AT_ONCE)

    def start(self, task: StateTask, plan: RestorePlan) -> Job:
        """Begin it, maybe after others; or find it, if this very plan runs or has ended well.

        Raises:
            Busy: another plan runs.
        """
        with self._lock:
            last = self._jobs.get(task.name)
            if last is not None and last.plan.id == plan.id and last.state != "failed":
                return last
            if last is not None and last.state == "running":
                raise Busy(
                    f"a restore of {task.name} from {last.plan.choice} is running already: wait "
                    "for it, `holdfast stores` shows the task's state",
                    task=task.name,
                    plan=last.plan.id,
                )
            job, name = Job(task, plan), f"restore {task.name}"
            threading.Thread(target=self._run, args=[job], name=name, daemon=True).start()
            self._jobs[task.name] = job  # after the start, which may fail
            return job

    def is_running(self, task: StateTask) -> bool:
        """Whether one that was asked for runs."""
        job = self._jobs.get(task.name)
        return job is not None and job.state == "running"

    def last(self, task: StateTask) -> Job:
        """The newest one of a task.

        Raises:
            NotFound: nobody has asked this process for one.
        """
        job = self._jobs.get(task.name)
        if job is None:
            raise NotFound(
                f"this host was asked for no restore of {task.name} since it started; `holdfast "
                "stores` shows the task's state",
                task=task.name,
            )
        return job

    def _run(self, job: Job) -> None:
        with self._turns:
            job.run(self._restore)
