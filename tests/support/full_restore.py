"""A process that restores on a small tmpfs that fills up meanwhile; prints what happened as JSON.

``python -m tests.support.full_restore STATE_DIR``, in a mount namespace. The log is in memory; the
disk, RocksDB and the restore are the real ones.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections import Counter
from pathlib import Path
from typing import Any

from state_lib.changelog.memory import MemoryLog
from state_lib.changelog.topics import plan_topics
from state_lib.errors import HoldfastError
from state_lib.logs import configure_logging
from state_lib.restore import run
from state_lib.restore.listener import Silent
from state_lib.restore.local import mark_whole
from state_lib.restore.options import RestoreOptions
from state_lib.restore.plan import CHANGELOG
from state_lib.specs import Topology
from state_lib.stores.rocksdb.options import RocksDBOptions
from state_lib.task import Puts, StateTask, TaskContext
from tests.support.apps import KV, NOON, SOURCE, TS, batch, claimed, digests
from tests.support.full_disk import fill

COMMITS, KEYS, VALUE_BYTES = 30, 20, 10_000
OPTIONS = RocksDBOptions(block_cache_bytes=8 << 20, write_buffer_bytes=1 << 20)
RESTORE = RestoreOptions(batch_size=50, run_bytes=1 << 20)
Moment = tuple[str, str, int]
"""What happens, in which store, for the how manieth time."""
MOMENTS: tuple[Moment, ...] = (
    ("start", "kv", 1),
    ("batch", "kv", 3),
    ("batch", "ts", 5),
    ("end", "ts", 1),
    ("whole", "", 1),
)


class Filling(Silent):
    """Takes all space but ``leave`` bytes once a restore has come to the moment that is armed."""

    def __init__(self, ballast: Path) -> None:
        self.ballast = ballast
        self.leave, self.armed = 0, ("", "", 0)
        self._seen = Counter[tuple[str, str]]()
        setattr(run, "mark_whole", self._when_whole)  # noqa: B010 - it is imported there

    def arm(self, moment: Moment, leave: int) -> None:
        """From now on."""
        self.armed, self.leave = moment, leave
        self._seen.clear()

    def on_restore_start(self, task: str, store: str, start: int, end: int) -> None:
        """See `RestoreListener`."""
        del task, start, end
        self._look("start", store)

    def on_batch_restored(self, task: str, store: str, records: int, offset: int) -> None:
        """See `RestoreListener`."""
        del task, records, offset
        self._look("batch", store)

    def on_restore_end(self, task: str, store: str, records: int) -> None:
        """See `RestoreListener`."""
        del task, records
        self._look("end", store)

    def _when_whole(self, building: Path, plan: str = "") -> None:
        self._look("whole", "")
        mark_whole(building, plan)

    def _look(self, what: str, store: str) -> None:
        self._seen[what, store] += 1
        if (what, store, self._seen[what, store]) == self.armed:
            fill(self.ballast, self.leave)


class Restored:
    """One task with something in it, and what becomes of it."""

    def __init__(self, state: Path) -> None:
        topology = Topology("app", 1, (KV, TS), (), (SOURCE,))
        log = MemoryLog({plan.name: plan.partitions for plan in plan_topics(topology)})
        self.filling = Filling(state / "ballast")
        context = TaskContext(log, "host-1", state, OPTIONS, self.filling, restore=RESTORE)
        self.task = StateTask(context, topology, 0)
        self.task.open()
        marker = claimed(self.task)
        for n in range(COMMITS):
            keys = [b"k%d" % (n * KEYS // 2 + i) for i in range(KEYS)]
            puts = Puts(keys, [os.urandom(VALUE_BYTES) for _ in keys], [NOON] * KEYS)
            marker = self.task.commit(batch(marker, {"kv": puts, "ts": puts}))
        self.task.flush()
        self.wanted = digests(self.task), marker.batch_number

    def lost(self) -> None:
        """The directory is lost, and the host opens the task."""
        self.task.close()
        shutil.rmtree(self.task.path)
        self.task.open()

    def replaced(self) -> None:
        """Somebody asks for a restore while the directory is whole."""
        self.task.restore(self.task.plan(CHANGELOG))

    def seen(self, how: str, moment: Moment, leave: int) -> dict[str, Any]:
        """What the restore says, what is left, and whether all is well with space again."""
        self.filling.arm(moment, leave)
        said: dict[str, Any] = {"code": "", "message": ""}
        try:
            getattr(self, how)()
        except HoldfastError as error:
            said = {"code": error.code, "message": error.message}
        said["filled"] = self.filling.ballast.exists()
        said["left"] = self._names()
        self.filling.ballast.unlink(missing_ok=True)
        self.filling.arm(("", "", 0), 0)
        self.task.open()
        self.task.flush()
        said["well"] = (digests(self.task), self.task.marker.batch_number) == self.wanted
        said["after"] = self._names()
        return said

    def _names(self) -> list[str]:
        return sorted(p.name for p in self.task.path.parent.iterdir())


def main(folder: str) -> None:
    configure_logging()  # standard output is ours
    one = Restored(Path(folder))
    seen = {
        f"{how}: {moment[0]} {moment[1]}, {leave}": one.seen(how, moment, leave)
        for moment in MOMENTS
        for leave in (0, 1_500_000)
        for how in ("lost", "replaced")
    }
    marker = one.task.commit(batch(one.task.marker, {"kv": Puts([b"new"], [b"1"], [NOON])}))
    one.task.close()
    sys.stdout.write(json.dumps({"seen": seen, "n": marker.batch_number}))


if __name__ == "__main__":
    main(*sys.argv[1:])
