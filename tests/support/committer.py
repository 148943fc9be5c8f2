"""A process that hosts one task and commits batches, to be killed at a failpoint.

``python -m tests.support.committer BOOTSTRAP STATE_DIR TOPOLOGY_JSON BATCHES``; writes one line per
acknowledged commit: its number. Failpoints are armed after the claim, which passes them as well.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from state_lib.changelog.log import KafkaLog
from state_lib.errors import HoldfastError
from state_lib.kafka import Kafka
from state_lib.logs import configure_logging
from state_lib.protocol.marker import Marker
from state_lib.specs import Topology
from state_lib.task import Batch, StateTask, TaskContext
from tests.support.apps import HOUR, NOON, batch, claimed, kv, win


def nth(marker: Marker, n: int) -> Batch:
    """Batch ``n``: an overwrite, a delete, new keys, windows that expire."""
    pairs = [("same", f"{n}"), (f"k{n}", f"{n}"), (f"k{n - 2}", None)]
    start = NOON + n * HOUR
    puts = {"kv": kv(*pairs), "win": win(("w", start, f"{n}"), ("w", start - HOUR, f"late {n}"))}
    return batch(marker, puts, n=n, clock=start)


def main(bootstrap: str, folder: str, topology: str, batches: str) -> int:
    configure_logging()  # standard output is ours
    armed = os.environ.pop("HOLDFAST_FAILPOINTS", "")
    kafka = Kafka({"bootstrap.servers": bootstrap, "log_level": 0})
    context = TaskContext(KafkaLog(kafka), "host-1", Path(folder))
    task = StateTask(context, Topology.from_json(json.loads(topology)), 0)
    marker = task.open()
    marker = marker if marker.epoch >= 0 else claimed(task)
    os.environ["HOLDFAST_FAILPOINTS"] = armed
    for _ in range(int(batches)):
        try:
            marker = task.commit(nth(marker, marker.batch_number + 1))
        except HoldfastError as error:
            print(type(error).__name__, error.message, flush=True)  # noqa: T201
            return 3
        print(marker.batch_number, flush=True)  # noqa: T201
    task.close()
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
