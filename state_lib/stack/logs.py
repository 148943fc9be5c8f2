"""The ends of log files."""

from __future__ import annotations

import os
from pathlib import Path

BLOCK_BYTES = 64 << 10


def last_lines(path: Path, count: int) -> list[str]:
    """The last ``count`` lines of a file, read from its end; none if it does not exist."""
    if count <= 0:
        return []
    data = b""
    try:
        with path.open("rb") as file:
            position = file.seek(0, os.SEEK_END)
            while position > 0 and data.count(b"\n") <= count:
                step = min(BLOCK_BYTES, position)
                position = file.seek(position - step)
                data = file.read(step) + data
    except FileNotFoundError:
        return []
    return data.decode(errors="replace").splitlines()[-count:]
