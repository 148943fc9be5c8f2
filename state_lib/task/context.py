"""What all tasks of a process share."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from state_lib.changelog.log import CommitLog, KafkaLog
from state_lib.errors import InvalidRequest
from state_lib.kafka import Kafka
from state_lib.restore.listener import RestoreListener, Silent
from state_lib.restore.options import RestoreOptions
from state_lib.restore.pool import WorkerPool
from state_lib.stores.rocksdb.options import RocksDBOptions

OnCommit = Callable[[str, Mapping[str, int], float], None]
"""Told of each applied commit: the task, changed entries per store, seconds that it took."""


def _nobody(_task: str, _changed: Mapping[str, int], _seconds: float) -> None:
    """The default: nobody listens."""


@dataclass(frozen=True)
class TaskContext:
    """What all tasks of a process share.

    ``stopping``, once set, ends restores that run. ``pool``: processes that long ones use.
    """

    log: CommitLog
    host_id: str
    state_dir: Path
    options: RocksDBOptions = field(default_factory=RocksDBOptions)
    listener: RestoreListener = field(default_factory=Silent)
    on_commit: OnCommit = _nobody
    restore: RestoreOptions = field(default_factory=RestoreOptions)
    pool: WorkerPool | None = None
    stopping: threading.Event = field(default_factory=threading.Event)

    @property
    def kafka(self) -> Kafka:
        """The brokers that hold the log, for who asks more of them than a log can tell.

        Raises:
            InvalidRequest: there are none: the log is in memory.
        """
        if not isinstance(self.log, KafkaLog):
            raise InvalidRequest(
                "this task's log is no log of Kafka's: there are no brokers to ask"
            )
        return self.log.kafka
