"""A copy on disk of all stores of a running task, all at one commit."""

from __future__ import annotations

from pathlib import Path

from state_lib.stores.task_stores import NO_DIRECTORY
from state_lib.task.state_task import StateTask


def checkpoint(task: StateTask, into: Path) -> None:
    """Hard links of RocksDB's files; commits and reads go on meanwhile.

    Memory stores must be at the same commit as RocksDB. If there are any, most is flushed first,
    and commits wait only for the flush of the rest and a copy of references.

    Args:
        task: to copy.
        into: a directory that does not exist, on the same disk.

    Raises:
        Unavailable: the task is not open, or its disk is full.
    """
    with task.guarded():
        with task.view() as (_, stores):
            pass
        if all(spec.backend != "memory" for spec in task.topology.stores):
            stores.rocks.checkpoint(into)
            return
        stores.rocks.flush()
        with task.view() as (_, stores):
            stores.rocks.checkpoint(into)
            write_memory = stores.memory.frozen()
        write_memory(into / NO_DIRECTORY)
