"""Beside the kills: events are written all the time, and a person answers what Airflow asks."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import Self
from urllib.parse import quote

from state_lib.client.airflow import Airflow
from state_lib.errors import HoldfastError
from tests.chaos.conftest import Events
from tests.chaos.soak.names import RESTORE

FEED_EVERY_S, FEED = 0.5, 50
LOOK_EVERY_S, READS_S = 2.0, 3.0


class Repeated(threading.Thread):
    """Does something again and again, as ``with Repeated(...)``; its failure is raised at the end.

    Args:
        every_s: pause between (s).
        action: what.
    """

    def __init__(self, every_s: float, action: Callable[[], object]) -> None:
        super().__init__(daemon=True)
        self._every_s, self._action = every_s, action
        self._ended = threading.Event()
        self._error: BaseException | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._ended.set()
        self.join()
        if self._error is not None and error is None:
            raise self._error

    def run(self) -> None:
        while not self._ended.wait(self._every_s):
            try:
                self._action()
            except BaseException as error:  # noqa: BLE001 - raised at the end
                self._error = error
                return


def feeding(events: Events) -> Repeated:
    """Writes events all the time, also while the broker is away."""
    return Repeated(FEED_EVERY_S, lambda: events.more(FEED))


class Person:
    """Approves what the restore DAG asks; ``asked`` are the subjects, in order.

    It reads what it is asked, as people do: Airflow takes a task that goes on within a second for a
    lost one, as long as it has not seen the worker's end, and fails it.
    """

    def __init__(self, airflow: Airflow) -> None:
        self._airflow = airflow
        self._read_from: dict[str, float] = {}
        self.asked: list[str] = []

    def answering(self) -> Repeated:
        """All the time."""
        return Repeated(LOOK_EVERY_S, self.answer)

    def answer(self) -> None:
        """Approve what is asked now; an Airflow that is away is asked again later."""
        with suppress(HoldfastError):
            path = f"/dags/{RESTORE}/dagRuns/~/hitlDetails"
            found = self._airflow._call("GET", path, params={"response_received": False})
            for one in found["hitl_details"]:
                task = one["task_instance"]
                run, waits = task["dag_run_id"], task["state"] == "awaiting_input"
                if waits and not one["response_received"] and self._has_read(run):
                    self._approve(run, task["task_id"])
                    self.asked.append(one["subject"])

    def _has_read(self, run: str) -> bool:
        return time.monotonic() - self._read_from.setdefault(run, time.monotonic()) >= READS_S

    def _approve(self, run: str, task: str) -> None:
        path = f"/dags/{RESTORE}/dagRuns/{quote(run, safe='')}/taskInstances/{task}/-1/hitlDetails"
        self._airflow._call("PATCH", path, json={"chosen_options": ["Approve"]})
