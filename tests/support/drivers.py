"""Drivers as the machine shows them: processes that carry a driver's id."""

from __future__ import annotations

import threading
from types import TracebackType
from typing import Self

import psutil

from state_lib.drivers.identity import ID_VARIABLE

LOOK_S = 0.5
_WORKERS = {"pyspark.daemon", "pyspark.worker"}


def job_processes() -> dict[str, psutil.Process]:
    """By driver id: the Python process that runs a job, neither its JVM nor Spark's workers."""
    found = {}
    for process in psutil.process_iter():
        try:
            mark = process.environ().get(ID_VARIABLE)
            command = process.cmdline() if mark else []
        except (psutil.Error, OSError):
            continue
        if mark and command and "java" not in command[0] and not _WORKERS & set(command):
            found[mark] = process
    return found


class Census(threading.Thread):
    """Counts an application's living drivers all the time, as ``with Census(job) as census``.

    Args:
        job: part of the command line of the job's process.
    """

    def __init__(self, job: str) -> None:
        super().__init__(daemon=True)
        self._job = job
        self._ended = threading.Event()
        self.most = 0
        self.at_most: tuple[str, ...] = ()
        self.seen: list[str] = []

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

    def living(self) -> dict[str, psutil.Process]:
        """Drivers that run the job now."""
        out = {}
        for mark, process in job_processes().items():
            try:
                ours = any(self._job in part for part in process.cmdline())
            except psutil.Error:
                continue
            if ours:
                out[mark] = process
        return out

    def run(self) -> None:
        while not self._ended.wait(LOOK_S):
            now = tuple(self.living())
            self.seen += [mark for mark in now if mark not in self.seen]
            if len(now) > self.most:
                self.most, self.at_most = len(now), now
