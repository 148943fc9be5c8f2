"""Opens the tasks of a host in the background, again and again, and knows why one is not open."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import structlog

from state_lib.errors import HoldfastError, LogLost, Quarantined, Unavailable, from_wire
from state_lib.task import StateTask

log = structlog.get_logger(__name__)
_AT_ONCE = 4
_REOPEN_FIRST_S, _REOPEN_MOST_S = 0.5, 10.0


class Openers:
    """Of one host.

    Args:
        lock: of the host's tasks; what is known of them changes under it.
        is_held: whether a task is among them still.

    Attributes:
        failures: task → why its last attempt failed.
        quarantined: those that wait for somebody to ask for a restore.
        lost: those whose topics lost what was committed.
    """

    def __init__(self, lock: threading.RLock, is_held: Callable[[StateTask], bool]) -> None:
        self._lock, self._is_held = lock, is_held
        self.failures: dict[str, str] = {}
        self.quarantined: dict[str, Quarantined] = {}
        self.lost: dict[str, LogLost] = {}
        self._under_way: set[str] = set()
        self._kept: Counter[str] = Counter()  # task → how many callers keep it from being opened
        self._retry: dict[str, tuple[float, float]] = {}  # task → not before, wait after that
        self._pool = ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="open")
        self._stopped = False

    def stop(self) -> None:
        """Begin no attempt any more, and wait for those under way."""
        with self._lock:
            self._stopped = True
        self._pool.shutdown(wait=True, cancel_futures=True)

    def open_soon(self, task: StateTask) -> None:
        """Begin an attempt, unless one is under way or the last one failed just now."""
        with self._lock:
            not_before, _ = self._retry.get(task.name, (0.0, 0.0))
            waits = time.monotonic() < not_before
            busy = task.name in self._under_way or self._kept[task.name]
            if waits or busy or self._stopped:
                return
            self._under_way.add(task.name)
            self._pool.submit(self.attempt, task)

    def attempt(self, task: StateTask) -> None:
        """One attempt: tasks that cannot be opened must not hold the openers of the others."""
        with self._lock:
            if self._kept[task.name]:  # since it was submitted: it would block an opener
                self._under_way.discard(task.name)
                return
        why = self._why_not(task)
        with self._lock:
            self._under_way.discard(task.name)
            if why is None or not self._is_held(task):
                self.forget(task)
                return
            self.failures[task.name] = why
            _, wait = self._retry.get(task.name, (0.0, _REOPEN_FIRST_S))
            self._retry[task.name] = (time.monotonic() + wait, min(wait * 2, _REOPEN_MOST_S))

    def forget(self, task: StateTask) -> None:
        """It is open, given up, or there is a new reason to try."""
        with self._lock:
            self.failures.pop(task.name, None)
            self.quarantined.pop(task.name, None)
            self.lost.pop(task.name, None)
            self._retry.pop(task.name, None)

    def refuse(self, task: StateTask) -> None:
        """Raise why a task that is not open cannot be used.

        Raises:
            LogLost, Quarantined: as its last attempt.
            Unavailable: for any other reason.
        """
        known = self.lost.get(task.name) or self.quarantined.get(task.name)
        if known is not None:
            raise from_wire(known.to_wire())
        why = self.failures.get(task.name, "it is opening or restoring")
        details = {"task": task.name}
        if task.past is not None:
            why = f"it is being restored to the past, to snapshot {task.past}; {why}"
            details["past"] = task.past  # callers may wait as long as that takes
        raise Unavailable(f"task {task.name} is not ready: {why}; try again", **details)

    @contextmanager
    def kept_away(self, task: StateTask) -> Iterator[None]:
        """Meanwhile no attempt to open it begins; one may be under way."""
        with self._lock:
            self._kept[task.name] += 1
        try:
            yield
        finally:
            with self._lock:
                self._kept[task.name] -= 1

    def _why_not(self, task: StateTask) -> str | None:
        started = time.monotonic()
        try:
            marker = task.open()
        except Quarantined as error:
            if task.name not in self.quarantined:
                log.error("task is quarantined", task=task.name, why=error.message)
            self.lost.pop(task.name, None)
            self.quarantined[task.name] = error
            return error.message
        except LogLost as error:
            if task.name not in self.lost:
                log.error("task is not open", task=task.name, why=error.message)
            self.quarantined.pop(task.name, None)
            self.lost[task.name] = error
            return error.message
        except HoldfastError as error:
            self.lost.pop(task.name, None)  # it is not lost any more
            log.warning("task is not open", task=task.name, why=error.message)
            return error.message
        except Exception as error:
            log.exception("task is not open", task=task.name)
            return repr(error)
        seconds = round(time.monotonic() - started, 3)
        log.info(
            "task is open",
            task=task.name,
            epoch=marker.epoch,
            batch_number=marker.batch_number,
            seconds=seconds,
        )
        return None
