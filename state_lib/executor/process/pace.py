"""How long processors are at work in an exchange: one that is slow must not look like a host."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from state_lib.errors import ProcessorUnready

_SHARE = 0.9
"""Of an exchange's time: after that there is none left to commit in."""
_MOSTLY = 0.5


class Waiting(Protocol):
    """The part of a buffer that counts."""

    waited_s: float


class Pace:
    """Of one task and batch.

    Args:
        task: the partition.
        within_s: what is left of the exchange's time.
    """

    def __init__(self, task: int, within_s: float) -> None:
        self.task, self._within_s = task, within_s
        self._began = time.monotonic()
        self._calls = 0
        self.busy_s = 0.0
        """How long handlers have worked, without what they waited for reads."""

    @contextmanager
    def at_work(self, name: str, waiting: Waiting, calls: int = 1) -> Iterator[None]:
        """Around calls of a handler, whatever comes of them.

        Args:
            name: of the processor.
            waiting: through which it reads: what that waits for is not its own time.
            calls: how many they are.

        Raises:
            ProcessorUnready: the time is over, and most of it was spent in handlers.
        """
        began, waited = time.monotonic(), waiting.waited_s
        try:
            yield
        finally:
            now = time.monotonic()
            self.busy_s += now - began - (waiting.waited_s - waited)
            self._calls += calls
            if now - self._began > _SHARE * self._within_s and (
                self.busy_s > _MOSTLY * self._within_s
            ):
                raise self._slow(name)

    def _slow(self, name: str) -> ProcessorUnready:
        return ProcessorUnready(
            f"processor {name!r} takes too long on task {self.task}: {self._calls} calls of its "
            f"handlers took {self.busy_s:.0f} s, and the exchange of a batch may take "
            f"{self._within_s:.0f} s. It is tried again. Let it do less for each key, or raise "
            "HOLDFAST_EXCHANGE_TIMEOUT_S; HOLDFAST_FIRST_OFFSETS_PER_TRIGGER and "
            "HOLDFAST_MAX_OFFSETS_PER_TRIGGER make batches smaller that have not begun",
            processor=name,
            task=self.task,
        )
