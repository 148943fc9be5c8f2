"""All tasks of one application in this process, and what may go wrong with them on purpose."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
from confluent_kafka import Message

from state_lib.changelog.memory import MemoryLog
from state_lib.changelog.topics import plan_topics
from state_lib.changelog.writer import OutcomeUnknown
from state_lib.errors import Unavailable
from state_lib.host.exchange import TaskExchange, is_done
from state_lib.protocol.marker import CommitHeader, Marker
from state_lib.specs import Topology
from state_lib.stores.pages import Page
from state_lib.stores.rocksdb.options import RocksDBOptions
from state_lib.task import StateTask, TaskContext

EPOCH = 0
_OPTIONS = RocksDBOptions(
    block_cache_bytes=16 << 20, write_budget_bytes=16 << 20, write_buffer_bytes=1 << 20
)


class CrashingLog(MemoryLog):
    """Tells of no outcome where it is asked to: what was committed stands all the same."""

    silent = False

    def append(self, writer_id: str, epoch: int, partition: int, cut: Sequence[Message]) -> None:
        """See `MemoryLog`. Raises OutcomeUnknown, once, if it was to be `silent`."""
        super().append(writer_id, epoch, partition, cut)
        if self.silent:
            self.silent = False
            raise OutcomeUnknown("the test wants no answer of this commit")


class Tasks:
    """Tasks by partition, and the client by which `state_lib.executor.exchange` reaches them.

    Args:
        topology: of the application.
        folder: for their directories.
        crashing: whether every exchange with rows goes wrong once: in turn, its commit has an
            unknown outcome, or its answer is lost and the task with its directory as well.
    """

    def __init__(self, topology: Topology, folder: Path, *, crashing: bool = False) -> None:
        self.log = CrashingLog({plan.name: plan.partitions for plan in plan_topics(topology)})
        self.topology = topology
        self._context = TaskContext(self.log, "test", folder, _OPTIONS)
        self._crashing, self._crashed = crashing, set[tuple[int, int]]()
        self._tasks = [self._opened(p) for p in range(topology.partitions)]
        for task in self._tasks:
            task.claim(topology, EPOCH)

    def __iter__(self) -> Iterator[StateTask]:
        return iter(self._tasks)

    def __getitem__(self, partition: int) -> StateTask:
        return self._tasks[partition]

    def close(self) -> None:
        """Close all."""
        for task in self._tasks:
            task.close()

    # ------------------------------------------------------------------ as a client

    def marker(self, app: str, partition: int, timeout_s: float = 0.0) -> Marker:
        """Where a task stands."""
        del app, timeout_s
        return self._tasks[partition].marker

    @contextmanager
    def exchange(
        self,
        app: str,
        partition: int,
        epoch: int,
        batch_number: int,
        timeout_s: float = 0.0,
        silent_s: float | None = None,
    ) -> Iterator[_Exchange]:
        """One task, one batch. A task that closed in doubt is opened first, as by its host."""
        del app, timeout_s, silent_s
        task = self._tasks[partition]
        if not task.is_open:
            task.open()
        yield _Exchange(self, partition, is_done(task.marker, epoch, batch_number))

    def commit(self, partition: int, exchange: TaskExchange, header: CommitHeader) -> Marker:
        """Commit an exchange; see ``crashing``."""
        at = partition, header.batch_number
        if not self._crashing or at in self._crashed:
            return exchange.commit(header)
        self._crashed.add(at)
        if sum(at) % 2:
            self.log.silent = True
            try:
                return exchange.commit(header)
            finally:
                self.log.silent = False
        exchange.commit(header)
        self._lose(partition)
        raise Unavailable(
            f"the test lets task {partition} crash behind commit {header.batch_number}"
        )

    # ------------------------------------------------------------------ inside

    def _opened(self, partition: int) -> StateTask:
        task = StateTask(self._context, self.topology, partition)
        task.open()
        return task

    def _lose(self, partition: int) -> None:
        """As by a crash and a new disk: nothing is left but the log."""
        self._tasks[partition].close()
        shutil.rmtree(self._tasks[partition].path)
        self._tasks[partition] = self._opened(partition)


class _Exchange:
    """What `state_lib.executor.exchange.OpenExchange` says."""

    def __init__(self, tasks: Tasks, partition: int, already_done: bool) -> None:  # noqa: FBT001
        self._tasks, self._partition = tasks, partition
        self._exchange = TaskExchange(tasks[partition])
        self.marker, self.already_done = tasks[partition].marker, already_done

    def get(self, store: str, keys: pa.BinaryArray) -> pa.BinaryArray:
        """See `OpenExchange`."""
        return self._exchange.get(store, keys)

    def page(self, store: str, lower: bytes | None, upper: bytes | None, rows: int) -> Page:
        """See `OpenExchange`."""
        return self._exchange.page(store, lower, upper, rows)

    def put(
        self, store: str, keys: pa.BinaryArray, values: pa.BinaryArray, timestamps: pa.Int64Array
    ) -> None:
        """See `OpenExchange`."""
        self._exchange.put(store, keys, values, timestamps)

    def output(
        self, topic: str, keys: pa.BinaryArray, values: pa.BinaryArray, timestamps: pa.Int64Array
    ) -> None:
        """See `OpenExchange`."""
        self._exchange.output(topic, keys, values, timestamps)

    def dead_letters(self, letters: pa.BinaryArray) -> None:
        """See `OpenExchange`."""
        if len(letters):
            self._exchange.dead_letters(letters)

    def commit(self, header: CommitHeader) -> Marker:
        """See `OpenExchange`."""
        return self._tasks.commit(self._partition, self._exchange, header)
