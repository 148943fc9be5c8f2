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
"""Called after each applied commit with the task, changed entries per store, and seconds."""


def _nobody(_task: str, _changed: Mapping[str, int], _seconds: float) -> None:
    """The default: does nothing."""


@dataclass(frozen=True)
class TaskContext:
    """What all tasks of a process share.

    ``stopping``, once set, ends running restores. ``pool``: processes for long restores.
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
        """The brokers that hold the log, for requests beyond `CommitLog`.

        Raises:
            InvalidRequest: the log is in memory.
        """
        if not isinstance(self.log, KafkaLog):
            raise InvalidRequest(
                "this task's log is no log of Kafka's: there are no brokers to ask"
            )
        return self.log.kafka
