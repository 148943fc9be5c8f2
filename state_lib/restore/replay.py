"""Applies changelog records to a store: a short tail by writes, a whole log by sorted runs."""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from threading import Lock

from state_lib.changelog.log import CommitLog
from state_lib.changelog.topics import changelog_topic
from state_lib.errors import Unavailable
from state_lib.restore.listener import RestoreListener
from state_lib.restore.options import RestoreOptions
from state_lib.restore.pool import WorkerPool
from state_lib.restore.runs import Batch, Columns, Run, RunJob, write_runs
from state_lib.specs import StoreSpec
from state_lib.stores.task_stores import TaskStores


@dataclass(frozen=True)
class Replay:
    """Replays one task's changelogs into its stores.

    Attributes:
        log: that holds the changelogs.
        app, partition: of the task.
        stores: opened stores to write to.
        listener: gets the progress.
        clock: of the marker that the stores are brought to; what is expired then is left out, so
            that a memory store needs no more room than it had.
        runs: directory for runs until they are ingested; on the stores' disk. None: below them.
        options: batch size, memory bound, from where on worker processes pay.
        pool: of worker processes; without one, all is done here.
        check: called with every batch; what it raises ends the replay.
    """

    log: CommitLog
    app: str
    partition: int
    stores: TaskStores
    listener: RestoreListener
    clock: int
    runs: Path | None = None
    options: RestoreOptions = field(default_factory=RestoreOptions)
    pool: WorkerPool | None = None
    check: Callable[[], None] = lambda: None

    @property
    def task(self) -> str:
        """``<app>/<partition>``."""
        return f"{self.app}/{self.partition}"

    def tail(self, spec: StoreSpec, start: int, end: int) -> int:
        """Apply ``[start, end)`` by ordinary writes; right for short ranges and memory stores."""
        columns, told = Columns(spec, self.clock), _Told(self, spec, start, end)
        topic, size = changelog_topic(self.app, spec.name), self.options.batch_size
        for messages in self.log.read(topic, self.partition, start, end, size):
            keys, values = columns.of(messages)
            if keys:
                self.stores.write({spec.name: (keys, values)}, None)
            offset = (messages[-1].offset() or 0) + 1
            told.more(len(messages), offset - told.offset)
        return told.end()

    def full(self, spec: StoreSpec, start: int, end: int, records: int = 0) -> int:
        """Rebuild an empty RocksDB store from its whole log, with bounded memory.

        Args:
            spec: of the store.
            start: log start.
            end: exclusive.
            records: about so many there are; decides how many processes share the work.
        """
        if spec.backend == "memory":
            return self.tail(spec, start, end)
        told = _Told(self, spec, start, end)
        parts = self._parts(records)
        jobs = [
            RunJob(
                topic=changelog_topic(self.app, spec.name),
                partition=self.partition,
                start=start + (end - start) * part // max(1, parts),
                end=start + (end - start) * (part + 1) // max(1, parts),
                spec=spec,
                clock=self.clock,
                folder=self.runs or self.stores.path / "runs",
                name=f"{secrets.token_hex(4)}-{part}",
                run_bytes=self.options.run_bytes,
                batch=self.options.batch_size,
                options=self.stores.rocks.options,
            )
            for part in range(max(1, parts))
        ]
        if parts and self.pool is not None:
            self._beside(self.pool, jobs, told)
        else:
            job = replace(jobs[0], end=end)
            messages = self.log.read(job.topic, self.partition, start, end, job.batch)
            self._ingest(told.through(job, write_runs(job, messages)))
        return told.end()

    def _parts(self, records: int) -> int:
        """Into how many ranges a log is cut for workers; 0: it is read here."""
        if self.pool is None:
            return 0
        return min(self.pool.size, records // self.options.worker_records)

    def _beside(self, pool: WorkerPool, jobs: list[RunJob], told: _Told) -> None:
        """Ranges side by side, their runs ingested in the order of the log."""
        failures: list[BaseException] = []
        told.failed = lambda: bool(failures)

        def one(job: RunJob) -> list[Run]:
            with contextlib.closing(pool.run(job)) as work:
                try:
                    return list(told.through(job, work))
                except BaseException as error:
                    failures.append(error)  # the first one causes the others
                    raise

        with pool.in_use(), ThreadPoolExecutor(len(jobs), thread_name_prefix="runs") as threads:
            waiting: list[Future[list[Run]]] = [threads.submit(one, job) for job in jobs]
            for future in waiting:
                if future.exception() is not None:
                    raise failures[0]
                self._ingest(iter(future.result()))

    def _ingest(self, runs: Iterator[Run]) -> None:
        for run in runs:
            for family, path in run.files.items():
                self.stores.rocks.ingest(family, [Path(path)])


class _Told:
    """Tells the listener of one store's replay, whose ranges may be read side by side."""

    def __init__(self, replay: Replay, spec: StoreSpec, start: int, end: int) -> None:
        self._replay, self._store, self._end = replay, spec.name, end
        self._lock = Lock()
        self.offset, self._records = start, 0
        self.failed: Callable[[], bool] = lambda: False
        replay.listener.on_restore_start(replay.task, self._store, start, end)

    def through(self, job: RunJob, work: Iterator[Batch | Run]) -> Iterator[Run]:
        """The runs of a range; reports its batches."""
        at = job.start
        for event in work:
            if isinstance(event, Run):
                yield event
            else:
                self.more(event.records, event.offset - at)
                at = event.offset

    def more(self, records: int, offsets: int) -> None:
        """So many records more were read, over so many offsets."""
        with self._lock:
            self.offset += offsets
            self._records += records
            replay = self._replay
            task = replay.task
            replay.listener.on_batch_restored(task, self._store, records, self.offset)
        self._replay.check()
        if self.failed():
            raise Unavailable(f"another part of the restore of {replay.task} failed")

    def end(self) -> int:
        """All of it was read; returns how many records."""
        replay = self._replay
        replay.listener.on_restore_end(replay.task, self._store, self._records)
        return self._records
