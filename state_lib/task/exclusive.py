"""One at a time opens, restores or repairs a task, in this process and in others."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from pathlib import Path

from state_lib.errors import Busy, NotFound
from state_lib.restore.lock import restore_lock

PATIENCE_S = 2.0
"""An attempt to open a task that cannot be opened is over sooner than that."""


class Exclusive:
    """Of one task.

    Args:
        name: ``<app>/<partition>``.
        path: its directory; the lock for other processes lies beside it.

    Attributes:
        lock: of this process; taken before a task's other locks.
        retired: the task was removed from this host; nobody opens it again.
    """

    def __init__(self, name: str, path: Path) -> None:
        self._name, self._path = name, path
        self.lock = threading.RLock()
        self.retired = False

    @contextlib.contextmanager
    def alone(self, patience_s: float = PATIENCE_S) -> Iterator[None]:
        """While nothing else opens or restores this task.

        Raises:
            Busy: something else still does, after ``patience_s``.
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
        """The lock beside the directory. It would bring back the folder of a retired task."""
        if self.retired:
            raise NotFound(f"task {self._name} was removed from this host", task=self._name)
        return restore_lock(self._path)
