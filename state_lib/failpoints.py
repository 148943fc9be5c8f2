"""Named points at which a test makes a process die, stall or fail, to prove what survives.

``HOLDFAST_FAILPOINTS`` holds ``name=action`` pairs separated by ``;``, or ``@PATH`` of a file with
such text, which may be written while processes run. Actions:

- ``kill``: SIGKILL this process.
- ``kill-worker``: SIGKILL this Python worker of Spark.
- ``kill-jvm``: SIGKILL the JVM above it (the executor; the driver in local mode).
- ``kill-pid:PID``, ``kill-pid:PID:SECONDS``: SIGKILL that process, SECONDS later.
- ``raise``, ``sleep:SECONDS``.

Other processes pass the points of workers and leave them armed: a driver, which commits a tick of
the clock itself, and a worker whose JVM has gone.

``name=action@K`` acts at the K-th passing only (1 is the first). With ``HOLDFAST_FAILPOINTS_DIR`` a
point acts once, whatever restarts: it leaves a file of its name there. Without the variable a
point costs one look-up.
"""

from __future__ import annotations

import os
import signal
import time
from collections import Counter
from pathlib import Path
from threading import Lock

NAMES = (
    "commit.before_transaction",
    "commit.after_kafka",
    "commit.after_rocksdb",
    "exchange.before_commit",
    "exchange.after_commit",
    "driver.before_batch",
    "driver.after_record",
    "driver.after_run_record",
    "driver.after_batch",
    "driver.between_queries",
    "snapshot.checkpoint",
    "snapshot.upload",
    "snapshot.before_manifest",
    "snapshot.after_manifest",
    "snapshot.before_savepoint",
    "snapshot.prune",
    "snapshot.collect",
    "snapshot.fetch",
    "removal.noticed",
    "removal.forgotten",
    "removal.topic_deleted",
    "restore.before_build",
    "restore.during_fetch",
    "restore.after_fetch",
    "restore.after_run",
    "restore.after_store",
    "restore.before_checkpoint",
    "restore.after_checkpoint",
    "restore.before_swap",
    "restore.during_swap",
    "restore.after_swap",
    "restore.before_cleanup",
    "past.stopped",
    "past.claimed",
    "past.after_fetch",
    "past.before_begin",
    "past.after_begin",
    "past.after_chunk",
    "past.before_marker",
    "past.after_marker",
    "past.after_checkpoint",
    "repair.after_chunk",
    "repair.before_marker",
    "repair.after_marker",
    "repair.topology_passed",
)
"""Every point that code passes; a test that names another one fails at once."""

OF_WORKERS = ("kill-worker", "kill-jvm")
"""Actions in Python workers of Spark only."""

_passed: Counter[str] = Counter()
_counting = Lock()


def failpoint(name: str) -> None:
    """Act if this point is armed."""
    armed = os.environ.get("HOLDFAST_FAILPOINTS")
    if not armed:
        return
    if armed.startswith("@"):
        path = Path(armed[1:])
        armed = path.read_text() if path.exists() else ""
    with _counting:  # transfers pass a point in many threads
        _passed[name] += 1
        passed = _passed[name]
    for entry in filter(None, armed.strip().split(";")):
        point, _, action = entry.strip().partition("=")
        action, _, nth = action.partition("@")
        if point not in NAMES:
            raise ValueError(f"unknown failpoint {point!r}; known: {', '.join(NAMES)}")
        if point != name or (nth and passed != int(nth)):
            continue
        if action in OF_WORKERS and _jvm_above() is None:
            continue
        if _first_time(name):
            _act(name, action)


def _first_time(name: str) -> bool:
    folder = os.environ.get("HOLDFAST_FAILPOINTS_DIR")
    if not folder:
        return True
    try:
        (Path(folder) / name).touch(exist_ok=False)
    except FileExistsError:
        return False
    return True


def _act(name: str, action: str) -> None:
    kind, _, argument = action.partition(":")
    match kind:
        case "kill" | "kill-worker":
            os.kill(os.getpid(), signal.SIGKILL)
        case "kill-pid":
            pid, _, wait_s = argument.partition(":")
            time.sleep(float(wait_s or 0))
            os.kill(int(pid), signal.SIGKILL)
        case "kill-jvm":
            if (jvm := _jvm_above()) is not None:
                os.kill(jvm, signal.SIGKILL)
        case "raise":
            raise RuntimeError(f"failpoint {name}")
        case "sleep":
            time.sleep(float(argument))
        case _:
            raise ValueError(f"unknown failpoint action {action!r} at {name}")


def _jvm_above() -> int | None:
    import psutil  # noqa: PLC0415 - for tests only

    for parent in psutil.Process().parents():
        if parent.name() == "java":
            return int(parent.pid)
    return None
