"""A process that takes one task back in time, to be killed at a failpoint.

``python -m tests.support.traveller BOOTSTRAP STATE_DIR TOPOLOGY_JSON SNAPSHOTS_URL PAST_JSON``;
writes epoch and n when it is done. Without PAST_JSON (empty) it opens the task.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from state_lib.changelog.log import KafkaLog
from state_lib.kafka import Kafka
from state_lib.logs import configure_logging
from state_lib.restore.options import RestoreOptions
from state_lib.specs import Topology
from state_lib.task import StateTask, TaskContext
from state_lib.task.past import Past


def main(bootstrap: str, folder: str, topology: str, snapshots: str, past: str) -> int:
    configure_logging()  # standard output is ours
    kafka = Kafka({"bootstrap.servers": bootstrap, "log_level": 0})
    options = RestoreOptions("auto", snapshots)
    context = TaskContext(KafkaLog(kafka), "host-1", Path(folder), restore=options)
    task = StateTask(context, Topology.from_json(json.loads(topology)), 0)
    marker = task.go_back(Past.from_json(json.loads(past))) if past else task.open()
    print(marker.epoch, marker.batch_number, flush=True)  # noqa: T201
    task.close()
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
