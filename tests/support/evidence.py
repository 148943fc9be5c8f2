"""What the logs of broker, hosts, drivers and Airflow said while a test failed."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator
from pathlib import Path

SECTION = "logs"
"""What a failed report calls them; .ci/reports.py looks for it."""
_FILES = 8
_LINES = 100
_WIDTH = 300
_TAIL_BYTES = 64 << 10
_DATA = re.compile(r"\d+\.log")
"""Segments of topics, and RocksDB's."""


def since(folder: Path, started: float) -> str:
    """The last lines of each log below a folder that was written to since then, newest first."""
    found = sorted(_written(folder, started), key=lambda pair: -pair[0])
    return "\n".join(f"--- {path}\n{_end(path)}" for _, path in found[:_FILES])


def _written(folder: Path, started: float) -> Iterator[tuple[float, Path]]:
    for place, _, names in os.walk(folder):  # unlike rglob, it survives what is removed
        for path in (
            Path(place, n) for n in names if n.endswith(".log") and not _DATA.fullmatch(n)
        ):
            with contextlib.suppress(OSError):
                changed = path.stat().st_mtime
                if changed >= started:
                    yield changed, path


def _end(path: Path) -> str:
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - _TAIL_BYTES))
            text = file.read().decode(errors="replace")
    except OSError as error:
        return f"(gone: {error})"
    return "\n".join(line[:_WIDTH] for line in text.splitlines()[-_LINES:])
