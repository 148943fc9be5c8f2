"""Disk space that a commit needs."""

from __future__ import annotations

import shutil
from pathlib import Path

from state_lib.errors import Unavailable

MIN_FREE_BYTES = 32 << 20
"""Free space below which no commit is started: a disk that is full later closes the task."""


def check_disk(name: str, path: Path, size: int) -> None:
    """Raise Unavailable if the disk of a task cannot take a commit of ``size`` bytes."""
    needed = MIN_FREE_BYTES + 2 * size
    free = shutil.disk_usage(path).free
    if free < needed:
        raise Unavailable(
            f"disk under {path} has {free >> 20} MiB free, a commit of {name} needs "
            f"{needed >> 20} MiB: free space; commits go on by themselves",
            free_bytes=free,
            needed_bytes=needed,
        )
