"""Directories of tasks: what lies beside them, and blocks that a bad disk has changed."""

from __future__ import annotations

from pathlib import Path

from state_lib.restore.options import RestoreOptions
from state_lib.task import StateTask

WAITS = RestoreOptions(mode="orchestrated")


def beside(task: StateTask) -> list[str]:
    """What lies where its directory does."""
    return sorted(p.name for p in task.path.parent.iterdir())


def bad_blocks(folder: Path) -> None:
    """In the first data block of each SST: opening it reads what comes last, and sees nothing."""
    for sst in folder.glob("*.sst"):
        raw = bytearray(sst.read_bytes())
        if b"__meta__" in raw:
            continue
        raw[5:40] = bytes(35)
        sst.write_bytes(raw)
