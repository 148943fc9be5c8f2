"""Waits for a commit: savepoints take the state of all tasks right after the same commit."""

from __future__ import annotations

import threading
from collections.abc import Callable

import structlog

from state_lib.errors import Realign
from state_lib.protocol.marker import Marker

log = structlog.get_logger(__name__)
Action = Callable[[], None]


class Barrier:
    """Actions to run while a task stands at a commit. The task calls it under its commit lock."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: list[tuple[tuple[int, int], Action]] = []

    def arm(self, task: str, at: tuple[int, int], action: Action, marker: Marker) -> Action:
        """See `StateTask.at_commit`."""
        now = (marker.epoch, marker.batch_number)
        if now > at:
            raise Realign(
                f"task {task} stands at commit {now} already, beyond {at}: ask for a later one",
                task=task,
                marker=now,
                asked=at,
            )
        entry = (at, action)
        if now == at:
            action()
        else:
            with self._lock:
                self._waiting.append(entry)

        def disarm() -> None:
            with self._lock:
                if entry in self._waiting:
                    self._waiting.remove(entry)

        return disarm

    def passed(self, marker: Marker) -> None:
        """Run actions for a commit that was applied. If one fails, the commit still stands."""
        now = (marker.epoch, marker.batch_number)
        with self._lock:
            due = [action for at, action in self._waiting if at == now]
            self._waiting = [entry for entry in self._waiting if entry[0] > now]
        for action in due:
            try:
                action()
            except Exception:
                log.exception(
                    "what was to happen at a commit failed", epoch=now[0], batch_number=now[1]
                )
