"""Worker processes of a host: started when a restore pays for them, shared, ended when idle."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import threading
from collections.abc import Generator, Iterator

import orjson

from state_lib.errors import Unavailable, from_wire
from state_lib.kafka import Kafka
from state_lib.restore.runs import Batch, Run, RunJob

_END_S = 5.0


class WorkerPool:
    """At most ``size`` workers at a time, for all tasks of a process together.

    Args:
        kafka: what the workers connect to.
        size: how many; 0 means that runs are written in this process.
    """

    def __init__(self, kafka: Kafka, size: int) -> None:
        self._kafka = kafka
        self.size = size
        self._slots = threading.BoundedSemaphore(max(1, size))
        self._lock = threading.Lock()
        self._idle: list[_Worker] = []
        self._users = 0

    @contextlib.contextmanager
    def in_use(self) -> Iterator[None]:
        """Keep idle workers for each other; after the last user they end."""
        with self._lock:
            self._users += 1
        try:
            yield
        finally:
            with self._lock:
                self._users -= 1
                ended = [] if self._users else self._idle
                self._idle = self._idle if self._users else []
            for worker in ended:
                worker.end()

    def run(self, job: RunJob) -> Generator[Batch | Run, None, None]:
        """As `write_runs`, in a worker; waits for a free one. Closing the iterator ends it.

        Raises:
            Unavailable: the worker died; what it wrote counts for nothing.
            HoldfastError: what the worker met.
        """
        with self._slots:
            worker = self._worker()
            try:
                yield from worker.work(job)
            except BaseException:
                worker.end()
                raise
            with self._lock:
                self._idle.append(worker)

    def _worker(self) -> _Worker:
        with self._lock:
            if self._idle:
                return self._idle.pop()
        return _Worker(self._kafka)


class _Worker:
    def __init__(self, kafka: Kafka) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "state_lib.restore.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        self._send(orjson.dumps(dict(kafka.properties)))  # not in arguments: it may hold passwords

    def work(self, job: RunJob) -> Iterator[Batch | Run]:
        self._send(orjson.dumps(job.to_json()))
        out = self._process.stdout
        for raw in out or ():
            line = orjson.loads(raw)
            if "batch" in line:
                yield Batch(*line["batch"])
            elif "run" in line:
                yield Run(line["run"])
            elif "error" in line:
                raise from_wire(line["error"])
            else:
                return
        raise Unavailable(
            f"a restore worker ended with {self._process.wait()} while it read {job.topic}/"
            f"{job.partition}: look at the host's log and its memory",
            topic=job.topic,
            partition=job.partition,
        )

    def end(self) -> None:
        """Whatever it does, it stops, and is waited for."""
        self._process.kill()
        self._process.wait(_END_S)
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()

    def _send(self, line: bytes) -> None:
        if self._process.stdin is not None:
            with contextlib.suppress(BrokenPipeError):  # the reader of its output reports its end
                self._process.stdin.write(line + b"\n")
                self._process.stdin.flush()
