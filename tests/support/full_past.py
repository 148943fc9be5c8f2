"""A process that goes back in time on a small tmpfs that fills up meanwhile; prints it as JSON.

``python -m tests.support.full_past STATE_DIR STORAGE``, in a mount namespace. The log is in memory;
the disk, RocksDB, the snapshot and the way back are the real ones.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path
from typing import Any

from state_lib.changelog.memory import MemoryLog
from state_lib.changelog.topics import plan_topics
from state_lib.errors import HoldfastError
from state_lib.logs import configure_logging
from state_lib.restore.options import RestoreOptions
from state_lib.snapshots.write import SnapshotRequest, write_snapshot
from state_lib.specs import Topology
from state_lib.task import Puts, StateTask, TaskContext
from state_lib.task.checkpoint import checkpoint
from state_lib.task.past import Past
from tests.support.apps import KV, NOON, SOURCE, TS, batch, claimed, digests
from tests.support.full_restore import KEYS, OPTIONS, VALUE_BYTES, Filling, Moment

COMMITS = 15
MOMENTS: tuple[Moment, ...] = (
    ("before", "", 1),
    ("fetch", "", 1),
    ("start", "kv, back in time", 1),
    ("end", "ts, back in time", 1),
)


class FillingToo(Filling):
    """Also before it begins, and while a snapshot is fetched."""

    def before(self) -> None:
        """Nothing was asked for yet."""
        self._look("before", "")

    def on_snapshot_fetched(self, task: str, done: int, total: int) -> None:
        """See `RestoreListener`."""
        del task, done, total
        self._look("fetch", "")


class Traveller:
    """One task with a snapshot of before, and what becomes of it."""

    def __init__(self, state: Path, storage: str) -> None:
        topology = Topology("app", 1, (KV, TS), (), (SOURCE,))
        log = MemoryLog({plan.name: plan.partitions for plan in plan_topics(topology)})
        self.filling = FillingToo(state / "ballast")
        restore = RestoreOptions("auto", storage)
        context = TaskContext(log, "host-1", state, OPTIONS, self.filling, restore=restore)
        self.task = StateTask(context, topology, 0)
        self.task.open()
        claimed(self.task)
        self._commits()
        self.then = digests(self.task)
        folder = state / "app" / "0.snapshot"
        checkpoint(self.task, folder)
        request = SnapshotRequest(storage, topology, 0, folder, "host-1")
        self.snapshot = write_snapshot(request).manifest.id
        shutil.rmtree(folder)

    def _commits(self) -> None:
        """Other values each time."""
        for n in range(COMMITS):
            keys = [b"k%d" % (n * KEYS // 2 + i) for i in range(KEYS)]
            puts = Puts(keys, [os.urandom(VALUE_BYTES) for _ in keys], [NOON] * KEYS)
            self.task.commit(batch(self.task.marker, {"kv": puts, "ts": puts}))
        self.task.flush()

    def seen(self, moment: Moment, leave: int) -> dict[str, Any]:
        """What the way back says, what is left, and whether all is well with space again."""
        marker = self.task.claim(self.task.topology, self.task.marker.epoch + 1)
        self._commits()
        now = digests(self.task)
        past = Past(self.snapshot, republish=False, epoch=marker.epoch + 1, topic_id="")
        self.filling.arm(moment, leave)
        self.filling.before()
        said: dict[str, Any] = {"code": "", "message": ""}
        try:
            self.task.go_back(past)
        except HoldfastError as error:
            said = {"code": error.code, "message": error.message}
        said["filled"] = self.filling.ballast.exists()
        said["untouched"] = self.task.is_open and digests(self.task) == now
        self.filling.ballast.unlink(missing_ok=True)
        self.filling.arm(("", "", 0), 0)
        if said["untouched"]:
            self.task.go_back(past)
        self.task.open()  # as its host does, again and again
        self.task.flush()
        said["well"] = digests(self.task) == self.then
        said["rewound"] = self.task.marker.rewound == past.epoch
        said["after"] = sorted(p.name for p in self.task.path.parent.iterdir())
        return said


def main(folder: str, storage: str) -> None:
    configure_logging()  # standard output is ours
    one = Traveller(Path(folder), Path(storage).as_uri())
    seen = {
        f"{moment[0]} {moment[1]}, {leave}": one.seen(moment, leave)
        for moment in MOMENTS
        for leave in (0, 1_500_000)
    }
    one.task.close()
    sys.stdout.write(json.dumps({"seen": seen}))


if __name__ == "__main__":
    main(*sys.argv[1:])
