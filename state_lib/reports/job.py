"""Runs a job in the background: it writes heartbeats, and its result or error, to a record."""

from __future__ import annotations

import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

import structlog

from state_lib.errors import HoldfastError, StorageUnavailable
from state_lib.protocol.marker import now_ms
from state_lib.reports.folder import Reports
from state_lib.reports.record import Record, State

log = structlog.get_logger(__name__)
BEAT_S = 5.0
LAST_TRY_S = 120.0
"""How long a result is kept for storage that is away."""

Tell = Callable[[str], None]
"""Told of what is done, for people."""


def run_job(
    reports: Reports, job: str, work: Callable[[Tell], Mapping[str, Any]], beat_s: float = BEAT_S
) -> int:
    """Do it, in this process; returns the exit code: 0, or 1 if it failed.

    Args:
        reports: where its record lies.
        job: its id.
        work: returns the result, as plain data.
        beat_s: seconds between two signs of life.
    """
    beating = _Beating(reports, job, beat_s)
    beating.start()
    try:
        result, error = work(beating.tell), None
    except HoldfastError as raised:
        log.error("the job failed", id=job, why=raised.message)
        result, error = None, raised.to_wire()
    except Exception as raised:  # the record alone reports it
        log.exception("the job failed", id=job)
        message = f"{type(raised).__name__}: {raised}. The end of its log tells where"
        result, error = None, {"code": "internal", "message": message, "details": {}}
    return beating.end(result, error)


class _Beating(threading.Thread):
    """Writes the record every few seconds; storage that is away is no reason to stop."""

    def __init__(self, reports: Reports, job: str, beat_s: float) -> None:
        super().__init__(name="holdfast-beat", daemon=True)
        self._reports, self._beat_s = reports, beat_s
        self._record = Record(job, socket.gethostname(), os.getpid(), now_ms())
        self._over = threading.Event()

    def tell(self, phase: str) -> None:
        """Said with the next sign of life."""
        self._record = replace(self._record, phase=phase)

    def run(self) -> None:
        """Until the end, or until somebody asks the job to end."""
        while True:
            with suppress(StorageUnavailable):
                replace(self._record, at=now_ms()).write(self._reports)
                if self._reports.is_asked_to_end(self._record.id):
                    self._die()
            if self._over.wait(self._beat_s):
                return

    def _die(self) -> None:
        """Record it, and end this process by SIGTERM, as somebody on this machine would."""
        error = HoldfastError("it was asked to end, and has ended itself").to_wire()
        replace(self._record, at=now_ms(), state="failed", error=error).write(self._reports)
        os.kill(os.getpid(), signal.SIGTERM)

    def end(self, result: Mapping[str, Any] | None, error: Mapping[str, Any] | None) -> int:
        """Write the last record; retried for some time. Raises StorageUnavailable in the end."""
        self._over.set()
        self.join()  # no heartbeat may follow the last record
        state: State = "done" if error is None else "failed"
        last = replace(self._record, at=now_ms(), state=state, result=result, error=error)
        deadline = time.monotonic() + LAST_TRY_S
        while True:
            try:
                last.write(self._reports)
            except StorageUnavailable:
                if time.monotonic() > deadline:
                    raise
                time.sleep(1)
            else:
                return 0 if error is None else 1
