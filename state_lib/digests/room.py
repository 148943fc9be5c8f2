"""How much of a disk a replica leaves to others."""

from __future__ import annotations

import shutil
from pathlib import Path

from state_lib.errors import Unavailable

MIN_FREE_BYTES = 1 << 30


def require_room(folder: Path, needed: int = 0) -> None:
    """Raise Unavailable if ``needed`` bytes more would leave less than `MIN_FREE_BYTES`."""
    free = shutil.disk_usage(folder).free
    if free < MIN_FREE_BYTES + needed:
        raise Unavailable(
            f"the disk under {folder} has {free >> 20} MiB free, {needed >> 20} MiB are needed and "
            f"{MIN_FREE_BYTES >> 20} MiB must stay free for others: name a directory on a larger "
            "disk (--dir)",
            free_bytes=free,
            needed_bytes=needed,
        )
