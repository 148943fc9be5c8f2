"""What the last check saw of each log, by which the next one knows whether its cleaner works.

A note of this machine's: without it, a cleaner that is merely late is called stuck.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import orjson

from state_lib.checks.facts import LogSample
from state_lib.names import check_name

Earlier = dict[tuple[str, int], tuple[int, int, int]]


def recall(home: Path, app: str) -> Earlier:
    """``(changelog, partition) → (time, end, first repeat)``; nothing if there is no such note."""
    try:
        noted = orjson.loads(_file(home, app).read_bytes())
        return {(topic, int(p)): (at, end, first) for topic, p, at, end, first in noted}
    except (OSError, ValueError, TypeError):
        return {}


def note(
    home: Path,
    app: str,
    earlier: Earlier,
    samples: Mapping[str, Sequence[LogSample]],
    now: int,
) -> None:
    """Replace the file; a directory that cannot be written does not fail a check."""
    seen = dict(earlier)
    for topic, found in samples.items():
        seen |= {(topic, s.partition): (now, s.end, s.first_repeat) for s in found}
    file = _file(home, app)
    with contextlib.suppress(OSError):
        file.parent.mkdir(parents=True, exist_ok=True)
        draft = file.with_suffix(f".{os.getpid()}")
        draft.write_bytes(orjson.dumps([[*at, *what] for at, what in sorted(seen.items())]))
        draft.replace(file)


def _file(home: Path, app: str) -> Path:
    return home / "checks" / f"{check_name('application', app)}.json"
