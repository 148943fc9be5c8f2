"""A process that writes sorted runs of distinct keys, as a restore worker; prints its peak memory.

``python -m tests.support.run_memory FOLDER VALUE_BYTES``: three times what one run may hold.
Writes one line: how many runs, and bytes of memory at most. It imports what a worker does and no
more: pyarrow alone, which tasks import, takes half of what a worker may.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from pathlib import Path

from confluent_kafka import Message

import state_lib.restore.worker  # noqa: F401 - what a worker has imported counts too
from state_lib.heap import keep_heap
from state_lib.restore.options import RestoreOptions
from state_lib.restore.runs import _ENTRY_OVERHEAD, Run, RunJob, write_runs
from state_lib.specs import StoreSpec
from state_lib.stores.rocksdb.options import RocksDBOptions

KEY_BYTES = 12
NOON = 1_700_000_000_000


def batches(count: int, size: int, value: bytes) -> Iterator[list[Message]]:
    """Records as they are read, in no order of their keys."""
    for first in range(0, count, size):
        yield [
            Message(
                topic="t",
                partition=0,
                offset=at,
                key=b"%012d" % (at * 2_654_435_761 % 10**12),
                value=value + b"%08d" % at,
                timestamp=(1, NOON),
            )
            for at in range(first, min(first + size, count))
        ]


def peak() -> int:
    """Of this program only: ``ru_maxrss`` is at least what its parent had when it started this."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith("VmHWM:"))


def main(folder: str, value_bytes: str) -> None:
    """See above."""
    gc.disable()  # as a worker
    keep_heap()
    options, size = RestoreOptions(), int(value_bytes)
    count = 3 * options.run_bytes // (_ENTRY_OVERHEAD + KEY_BYTES + size)
    job = RunJob(
        "t", 0, 0, count, StoreSpec("kv"), NOON, Path(folder), "x", options.run_bytes,
        options.batch_size, RocksDBOptions(),
    )  # fmt: skip
    events = write_runs(job, batches(count, options.batch_size, b"v" * (size - 8)))
    runs = sum(isinstance(event, Run) for event in events)
    sys.stdout.write(f"{runs} {peak()}\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
