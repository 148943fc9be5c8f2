"""A process that opens or restores one task, to be killed at a failpoint or to hold its lock.

``python -m tests.support.restorer BOOTSTRAP STATE_DIR TOPOLOGY_JSON [SOURCE [SNAPSHOTS_URL
[WORKERS]]]``: opens the task; with a source it restores from there. Writes one line when it is
done: epoch and n. With ``FLUSHED`` in the environment, what a replay wrote is on disk after each
store, as where a buffer filled up meanwhile.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from state_lib.changelog.log import KafkaLog
from state_lib.kafka import Kafka
from state_lib.logs import configure_logging
from state_lib.restore.options import RestoreOptions
from state_lib.restore.pool import WorkerPool
from state_lib.restore.replay import Replay
from state_lib.specs import StoreSpec, Topology
from state_lib.task import StateTask, TaskContext

FLUSHED = "RESTORER_FLUSHED"


def _flush_tails() -> None:
    before = Replay.tail

    def tail(replay: Replay, spec: StoreSpec, start: int, end: int) -> int:
        count = before(replay, spec, start, end)
        replay.stores.rocks.flush()
        return count

    setattr(Replay, "tail", tail)  # noqa: B010 - of a method, plainly, is none for mypy


def main(
    bootstrap: str,
    folder: str,
    topology: str,
    source: str = "",
    snapshots: str = "",
    workers: str = "0",
) -> int:
    configure_logging()  # standard output is ours
    if FLUSHED in os.environ:
        _flush_tails()
    kafka = Kafka({"bootstrap.servers": bootstrap, "log_level": 0})
    options = RestoreOptions("auto", snapshots or None, worker_records=20)
    pool = WorkerPool(kafka, int(workers))
    context = TaskContext(KafkaLog(kafka), "host-1", Path(folder), restore=options, pool=pool)
    task = StateTask(context, Topology.from_json(json.loads(topology)), 0)
    marker = task.restore(task.plan(source)) if source else task.open()
    print(marker.epoch, marker.batch_number, flush=True)  # noqa: T201
    task.close()
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
