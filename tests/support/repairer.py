"""A process that repairs one task in small chunks, to be killed at a failpoint.

``python -m tests.support.repairer BOOTSTRAP STATE_DIR TOPOLOGY_JSON``; writes epoch and n.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from state_lib.changelog.log import KafkaLog
from state_lib.kafka import Kafka
from state_lib.logs import configure_logging
from state_lib.specs import Topology
from state_lib.task import StateTask, TaskContext, repair
from state_lib.task.repairing import repair_task


def main(bootstrap: str, folder: str, topology: str) -> int:
    configure_logging()  # standard output is ours
    repair.CHUNK_RECORDS = 5
    kafka = Kafka({"bootstrap.servers": bootstrap, "log_level": 0})
    context = TaskContext(KafkaLog(kafka), "host-1", Path(folder))
    marker = repair_task(StateTask(context, Topology.from_json(json.loads(topology)), 0))
    print(marker.epoch, marker.batch_number, flush=True)  # noqa: T201
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
