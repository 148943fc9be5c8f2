"""A process whose state lives on a small tmpfs that fills up; prints what happened as JSON.

``python -m tests.support.full_disk BOOTSTRAP STATE_DIR TOPOLOGY_JSON``, in a mount namespace.
"""

from __future__ import annotations

import json
import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from state_lib.changelog.log import KafkaLog
from state_lib.errors import Unavailable
from state_lib.kafka import Kafka
from state_lib.logs import configure_logging
from state_lib.protocol.marker import Marker
from state_lib.specs import Topology
from state_lib.task import StateTask, TaskContext, room
from tests.support.apps import batch, claimed, kv
from tests.support.waiting import deadline_in

VALUE = "v" * 20_000


def fill(ballast: Path, leave: int) -> None:
    """Take all space but about ``leave`` bytes."""
    chunk = b"\0" * (1 << 16)
    with ballast.open("ab", buffering=0) as out:
        try:
            while shutil.disk_usage(ballast.parent).free > leave + len(chunk):
                out.write(chunk)
            while leave == 0 and out.write(chunk[:4096]):
                pass
        except OSError:
            return


def refusal(call: Callable[[], object]) -> dict[str, Any]:
    try:
        call()
    except Unavailable as error:
        return {"message": error.message, "details": error.details}
    return {}


def main(bootstrap: str, folder: str, topology: str) -> None:
    configure_logging()  # standard output is ours
    state = Path(folder)
    kafka = Kafka({"bootstrap.servers": bootstrap, "log_level": 0})
    task = StateTask(
        TaskContext(KafkaLog(kafka), "host-1", state), Topology.from_json(json.loads(topology)), 0
    )
    seen: dict[str, Any] = {}

    def commit(marker: Marker) -> Marker:
        n = marker.batch_number + 1
        return task.commit(batch(marker, {"kv": kv(("same", f"{n}"), (f"k{n}", f"{n}{VALUE}"))}))

    task.open()
    marker = commit(claimed(task))
    fill(state / "ballast", 8 << 20)
    seen["guarded"] = refusal(lambda: commit(marker))
    seen["still_open"] = task.is_open
    (state / "ballast").unlink()
    marker = commit(marker)
    seen["after_guarded"] = marker.batch_number

    # Nearly no reserve: now the disk fills up under RocksDB itself.
    room.MIN_FREE_BYTES = -(1 << 30)
    fill(state / "ballast", 0)
    seen["flush"] = refusal(task.flush)
    attempts, refused = 0, 0
    while attempts < 40:
        attempts += 1
        if not task.is_open:
            refused += bool(refusal(task.open))
        if task.is_open:
            refused += bool(refusal(lambda: commit(task.marker)))
    seen["refused"] = refused
    (state / "ballast").unlink()
    deadline = deadline_in(40)
    while time.monotonic() < deadline:
        if not refusal(task.open) and not refusal(lambda: commit(task.marker)):
            break
        time.sleep(0.2)
    while time.monotonic() < deadline and refusal(task.flush):
        time.sleep(0.2)
    seen["n"] = task.marker.batch_number
    seen["entries"] = {k.decode(): v[:10].decode() for k, v in task.scan("kv")[1]}
    seen["left"] = sorted(p.name for p in task.path.parent.iterdir())
    task.close()
    sys.stdout.write(json.dumps(seen))


if __name__ == "__main__":
    main(*sys.argv[1:])
