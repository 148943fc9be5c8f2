"""Named points at which a test can make a process die, stall or fail, to prove what survives.

``HOLDFAST_FAILPOINTS`` holds ``name=action`` pairs separated by ``;``. Actions: ``kill`` (SIGKILL
this process), ``kill-parent`` (SIGKILL the parent: a Python worker's executor), ``raise``,
``sleep:SECONDS``. ``name=action@K`` acts at the K-th passing only (1 is the first).
``HOLDFAST_FAILPOINTS_DIR``: a point acts once per file there, across restarts of the process, so
that what is killed once may come back and live. Without the variable a point costs one look-up.
"""

from __future__ import annotations

import os
import signal
import time
from collections import Counter
from pathlib import Path

NAMES = (
    "commit.before_transaction",
    "commit.after_kafka",
    "commit.after_rocksdb",
    "exchange.before_commit",
    "exchange.after_commit",
    "driver.before_batch",
    "driver.after_record",
    "driver.after_batch",
)
"""Every point that code passes; a test that names another one fails at once."""

_passed: Counter[str] = Counter()


def failpoint(name: str) -> None:
    """Act if this point is armed."""
    armed = os.environ.get("HOLDFAST_FAILPOINTS")
    if not armed:
        return
    _passed[name] += 1
    for entry in armed.split(";"):
        point, _, action = entry.strip().partition("=")
        action, _, nth = action.partition("@")
        if point not in NAMES:
            raise ValueError(f"unknown failpoint {point!r}; known: {', '.join(NAMES)}")
        if point == name and (not nth or _passed[name] == int(nth)) and _first_time(name):
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
    if action == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    elif action == "kill-parent":
        os.kill(os.getppid(), signal.SIGKILL)
    elif action == "raise":
        raise RuntimeError(f"failpoint {name}")
    elif action.startswith("sleep:"):
        time.sleep(float(action.removeprefix("sleep:")))
    else:
        raise ValueError(f"unknown failpoint action {action!r} at {name}")
