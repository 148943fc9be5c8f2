"""Snapshots that somebody asked this host for: in the background, one at a time for each task."""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import structlog

from state_lib.errors import HoldfastError, InvalidRequest, NotFound, Unavailable
from state_lib.failpoints import failpoint
from state_lib.host.tasks import TaskManager
from state_lib.protocol.marker import now_ms
from state_lib.snapshots.listing import taken_for
from state_lib.snapshots.manifest import check_id
from state_lib.snapshots.write import SnapshotRequest, Written, write_snapshot
from state_lib.task.checkpoint import checkpoint
from state_lib.task.state_task import StateTask

log = structlog.get_logger(__name__)
_AT_ONCE = 2
_SUFFIX = ".snapshot"
_APART_S = 0.25
"""Between two checkpoints, and between one and a look at the last: commits have the cores then."""
_WAIT_S = 60.0
_LOOK_S = 0.2
_LONGEST = 64


@dataclass(frozen=True)
class At:
    """The commit at which a savepoint wants its snapshots, and how long to wait for it, in s."""

    savepoint: str
    epoch: int
    batch_number: int
    wait_s: float

    @classmethod
    def from_json(cls, data: dict[str, Any] | None) -> At | None:
        """As it comes over the wire. Raises InvalidRequest if it makes no sense."""
        if data is None:
            return None
        try:
            at = cls(
                check_id(data["id"]), int(data["epoch"]), int(data["n"]), float(data["wait_s"])
            )
        except (KeyError, TypeError, ValueError) as error:
            raise InvalidRequest(f"not a savepoint's request: {data!r}") from error
        if not 0 <= at.wait_s <= _WAIT_S:
            raise InvalidRequest(f"wait_s is {at.wait_s}; use 0 to {_WAIT_S:.0f}")
        return at


class Job:
    """One snapshot, from request to end, with its progress for clients.

    Args:
        task: of which.
        at: the commit of a savepoint.
        requests: ids of those that want it.

    Attributes:
        closed: whether it is that of an earlier request, and nobody joins it.
    """

    def __init__(self, task: StateTask, at: At | None, *requests: str) -> None:
        self.task, self.at = task, at
        self.requests = list(requests)
        self.closed = False
        self.directory = task.path.with_name(f"{task.path.name}{_SUFFIX}")
        self.started_at, self._began = now_ms(), time.monotonic()
        self._seconds: float | None = None
        self.phase, self.done, self.total = "queued", 0, 0
        self.written: Written | None = None
        self.error: HoldfastError | None = None

    @property
    def running(self) -> bool:
        """Whether it has not ended."""
        return self._seconds is None

    @property
    def savepoint(self) -> str | None:
        """Id of the savepoint that it is for."""
        return None if self.at is None else self.at.savepoint

    def progress(self, phase: str, done: int, total: int) -> None:
        """See `state_lib.snapshots.parallel.Progress`."""
        self.phase, self.done, self.total = phase, done, total

    def end(self) -> None:
        """It is over."""
        self._seconds = time.monotonic() - self._began

    def to_json(self) -> dict[str, Any]:
        """As it goes over the wire; sizes in bytes, ``started_at`` in ms."""
        state = "running" if self.running else "failed" if self.error else "done"
        written = self.written
        return {
            "task": self.task.name,
            "state": state,
            "phase": self.phase,
            "done": self.done,
            "total": self.total,
            "started_at": self.started_at,
            "seconds": round(self._seconds or time.monotonic() - self._began, 3),
            "savepoint": self.savepoint,
            "requests": list(self.requests),
            "snapshot": written and written.manifest.id,
            "size_bytes": written and written.manifest.size_bytes,
            "uploaded_bytes": written and written.uploaded_bytes,
            "error": self.error and self.error.to_wire(),
        }


class SnapshotJobs:
    """Takes snapshots of the tasks of a `TaskManager`, beside their commits.

    Args:
        tasks: of this host.
        url: where snapshots go.
        on_written: called with the task and wall time (ms) of each listed snapshot.
    """

    def __init__(
        self,
        tasks: TaskManager,
        url: str,
        on_written: Callable[[str, int], object] = lambda _task, _written_at: None,
    ) -> None:
        self._tasks, self._url, self._on_written = tasks, url, on_written
        self._lock = threading.Lock()
        self._jobs: dict[str, Job] = {}
        self._stopping = threading.Event()
        self._flushing = threading.Lock()
        self._slots = threading.BoundedSemaphore(_AT_ONCE)
        self._threads: set[threading.Thread] = set()
        for left in tasks.context.state_dir.glob(f"*/*{_SUFFIX}"):
            shutil.rmtree(left, ignore_errors=True)  # left by a process that was killed

    def start(
        self, app: str, partition: int, at: At | None = None, request: str | None = None
    ) -> dict[str, Any]:
        """Begin a snapshot of a task, or join the one that runs; see `Job.to_json`.

        Args:
            app: application.
            partition: of the task.
            at: the commit of a savepoint.
            request: id of the request. The same one again finds the snapshot that it led to, also
                after a restart; one that failed is begun again.

        Raises:
            NotFound, NotOwner, Unavailable: as `TaskManager.task`.
            Unavailable: one runs already, and a savepoint needs its own, or it just ends.
            InvalidRequest: ``request`` is no short text.
        """
        requests = () if request is None else (_checked(request),)
        task = self._tasks.task(app, partition)
        with self._lock:
            last = self._jobs.get(task.name)
            if last is not None and last.error is None and request in last.requests:
                return last.to_json()
            if last is not None and last.running:
                if at is None and not last.closed:
                    last.requests += requests
                    return last.to_json()
                raise Unavailable(
                    f"a snapshot of {task.name} is under way: ask again when it is done",
                    task=task.name,
                )
            if self._stopping.is_set():
                raise Unavailable("this host is stopping; ask again")
            job = self._jobs[task.name] = Job(task, at, *requests)
            thread = threading.Thread(target=self._run, args=[job], name=f"snapshot {task.name}")
            self._threads = {t for t in self._threads if t.is_alive()} | {thread}
            thread.start()
            return job.to_json()

    def status(self, app: str, partition: int) -> dict[str, Any]:
        """How the last snapshot of a task goes or went.

        Raises:
            NotFound: this process has taken none.
        """
        job = self._jobs.get(f"{app}/{partition}")
        if job is None:
            raise NotFound(
                f"this host has taken no snapshot of {app}/{partition} since it started; "
                "`holdfast snapshot list` shows what storage holds"
            )
        return job.to_json()

    def stop(self) -> None:
        """End what runs; nothing of it is listed."""
        self._stopping.set()
        with self._lock:
            running = set(self._threads)
        for thread in running:
            thread.join()

    # ------------------------------------------------------------------ inside

    def _run(self, job: Job) -> None:
        task = job.task
        try:
            if job.at is not None:  # before waiting for a slot: all tasks need the same commit
                self._checkpoint(job)
            with self._slot(job):
                if self._was_taken(job):
                    return
                if job.at is None:
                    self._checkpoint(job)
                failpoint("snapshot.checkpoint")
                request = SnapshotRequest(
                    url=self._url,
                    topology=task.topology,
                    partition=task.partition,
                    directory=job.directory,
                    host=self._tasks.context.host_id,
                    savepoint=job.savepoint,
                    requests=tuple(job.requests),
                )
                job.written = write_snapshot(request, partial(self._progress, job))
        except HoldfastError as error:
            job.error = error
            log.warning("no snapshot", task=task.name, why=error.message)
        except Exception as error:
            job.error = HoldfastError(f"the snapshot of {task.name} failed: {error!r}")
            log.exception("no snapshot", task=task.name)
        finally:
            shutil.rmtree(job.directory, ignore_errors=True)
            job.end()
        if job.written is not None:
            self._on_written(task.name, job.written.manifest.written_at)
            about = {"uploaded_bytes": job.written.uploaded_bytes}
            log.info("snapshot", task=task.name, snapshot=job.written.manifest.id, **about)

    def _was_taken(self, job: Job) -> bool:
        """Whether its request led to one before another request, or a restart of this host."""
        if job.at is not None or not job.requests:
            return False
        task = job.task
        found = taken_for(self._url, task.topology.app, task.partition, job.requests[0])
        with self._lock:  # requests that have joined meanwhile need a new one
            if found is None or not set(job.requests) <= set(found.requests):
                return False
            job.closed = True
        job.written = Written(found, 0)
        return True

    @contextmanager
    def _slot(self, job: Job) -> Iterator[None]:
        """One of `_AT_ONCE`: more uploads than that would take each other's time."""
        while not self._slots.acquire(timeout=_LOOK_S):
            self._progress(job, "queued", 0, 0)
        try:
            yield
        finally:
            self._slots.release()

    def _progress(self, job: Job, phase: str, done: int, total: int) -> None:
        if self._stopping.is_set():
            raise Unavailable(f"host {self._tasks.context.host_id!r} is stopping; ask again")
        job.progress(phase, done, total)

    def _checkpoint(self, job: Job) -> None:
        shutil.rmtree(job.directory, ignore_errors=True)
        if job.at is None:
            job.progress("checkpoint", 0, 0)
            with self._flushing:
                checkpoint(job.task, job.directory)
                self._stopping.wait(_APART_S)
            self._stopping.wait(_APART_S)
            return
        job.progress("waiting", 0, 0)
        taken = _Taken(job.task, job.directory)
        disarm = job.task.at_commit(job.at.epoch, job.at.batch_number, taken)
        deadline = time.monotonic() + job.at.wait_s
        try:
            while not taken.done.wait(_LOOK_S):
                self._progress(job, "waiting", 0, 0)
                if time.monotonic() > deadline:
                    raise Unavailable(
                        f"task {job.task.name} did not come to commit "
                        f"({job.at.epoch}, {job.at.batch_number}) within {job.at.wait_s} s; ask "
                        "again",
                        task=job.task.name,
                    )
        finally:
            disarm()
        if taken.error is not None:
            raise taken.error


def _checked(request: Any) -> str:
    if not isinstance(request, str) or not 0 < len(request) <= _LONGEST:
        raise InvalidRequest(f"{request!r} identifies no request: use 1 to {_LONGEST} characters")
    return request


class _Taken:
    """Makes the checkpoint in the committing thread, and notifies the waiting one."""

    def __init__(self, task: StateTask, directory: Path) -> None:
        self._task, self._directory = task, directory
        self.done = threading.Event()
        self.error: HoldfastError | None = None

    def __call__(self) -> None:
        try:
            checkpoint(self._task, self._directory)
        except HoldfastError as error:
            self.error = error
        finally:
            self.done.set()
