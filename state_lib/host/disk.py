"""How full the disk of a host's directories is, and how that went in the last day."""

from __future__ import annotations

import shutil
import time
from collections import deque
from pathlib import Path
from typing import Any

from state_lib.protocol.marker import now_ms
from state_lib.restore.facts import free_bytes

EVERY_S = 60.0
_LOOKS = 24 * 60
_SHOWN = 96


class DiskWatch:
    """Looks once a minute, whenever somebody passes by; remembers a day, until it ends."""

    def __init__(self, path: Path, every_s: float = EVERY_S) -> None:
        self._path, self._every_s = path, every_s
        self._looks: deque[tuple[int, int]] = deque(maxlen=_LOOKS)
        self._due = 0.0

    def pass_by(self) -> None:
        """Look, if it is time."""
        if time.monotonic() >= self._due:
            self._due = time.monotonic() + self._every_s
            total, free = self._now()
            self._looks.append((now_ms(), total - free))

    def to_json(self) -> dict[str, Any]:
        """``{"total", "free", "used": [[time in ms, bytes], …]}``, at most `_SHOWN` of them."""
        total, free = self._now()
        looks = list(self._looks)
        step = max(1, -(-len(looks) // _SHOWN))
        return {"total": total, "free": free, "used": looks[::-step][::-1]}

    def _now(self) -> tuple[int, int]:
        """What others may not use (a reserve of root's) is not there at all."""
        free = free_bytes(self._path)
        path = self._path
        while not path.exists():
            path = path.parent
        return shutil.disk_usage(path).used + free, free
