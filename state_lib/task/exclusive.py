"""A lock for opening, restoring and repairing a task, among threads and processes."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from pathlib import Path

from state_lib.errors import Busy, NotFound
from state_lib.restore.lock import restore_lock

PATIENCE_S = 2.0
"""Longer than an attempt to open a task that cannot be opened takes."""


class Exclusive:
    """The lock of one task.

    Args:
        name: ``<app>/<partition>``.
        path: its directory; the lock file for other processes lies beside it.

    Attributes:
        lock: of this process; taken before a task's other locks.
        retired: the task was removed from this host; it cannot be opened again.
    """

    def __init__(self, name: str, path: Path) -> None:
        self._name, self._path = name, path
        self.lock = threading.RLock()
        self.retired = False

    @contextlib.contextmanager
    def alone(self, patience_s: float = PATIENCE_S) -> Iterator[None]:
        """Hold the lock: nothing else opens or restores this task meanwhile.

        Raises:
            Busy: something else still holds it after ``patience_s``.
            NotFound: the task is retired.
        """
        if not self.lock.acquire(timeout=patience_s):
            raise Busy(
                f"task {self._name} is opening or restoring already: wait for it, `holdfast "
                "stores` shows its state",
                task=self._name,
            )
        try:
            with self.directory():
                yield
        finally:
            self.lock.release()

    def directory(self) -> contextlib.AbstractContextManager[None]:
        """The lock file. Taking it makes the folder, so not for a retired task."""
        if self.retired:
            raise NotFound(f"task {self._name} was removed from this host", task=self._name)
        return restore_lock(self._path)
