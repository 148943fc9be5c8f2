"""How long processors work in an exchange: a slow processor must not be taken for a slow host."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from state_lib.errors import ProcessorUnready

_SHARE = 0.9
"""Share of an exchange's time for handlers: the rest is for the commit."""
_MOSTLY = 0.5


class Waiting(Protocol):
    """A buffer that counts the time of its reads."""

    waited_s: float


class Pace:
    """The time of handlers in one task and batch.

    Args:
        task: the partition.
        within_s: time left for the exchange.
    """

    def __init__(self, task: int, within_s: float) -> None:
        self.task, self._within_s = task, within_s
        self._began = time.monotonic()
        self._calls = 0
        self.busy_s = 0.0
        """Seconds that handlers have worked, without their reads."""

    @contextmanager
    def at_work(self, name: str, waiting: Waiting, calls: int = 1) -> Iterator[None]:
        """Measure calls of a handler, also if they raise.

        Args:
            name: of the processor.
            waiting: its buffer, whose reads do not count as the handler's time.
            calls: number of calls.

        Raises:
            ProcessorUnready: the time is over, and handlers took most of it.
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
