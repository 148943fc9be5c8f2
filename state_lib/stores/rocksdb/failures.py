"""What RocksDB's error texts mean for the operator (rocksdict raises bare ``Exception``)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import rocksdict

from state_lib.errors import HoldfastError, InvalidRequest, StateCorrupt, Unavailable

_PASSING = {
    "No space left on device": "free space on this disk: the engine goes on by itself within "
    "seconds and the write can be repeated",
    "Disk quota exceeded": "raise the quota or free space, then repeat",
    "Read-only file system": "look at the kernel's log and mount the disk for writing again",
    "Too many open files": "raise the limit of open files or lower max_open_files",
    "Cannot allocate memory": "lower block_cache_bytes and write_budget_bytes",
}
_PASSING_AT_ONCE = {
    "IO error: While lock file:": "another engine has it open: close that one first",
    "IO error: lock hold by current process": "another engine has it open: close that one first",
    "IO error: while open a file for lock:": "look at who owns the directory and who runs this",
    "Shutdown in progress": "the engine is closing",
    "Resource busy": "repeat",
    "Operation aborted": "repeat",
}
"""Only where the text begins so: a path may hold any word, ``blockchain`` for example."""
_ASKED = ("Invalid argument", "raw mode only support bytes")


@contextmanager
def translated(path: Path, action: str) -> Iterator[None]:
    """Turn what rocksdict raises into Unavailable, InvalidRequest or StateCorrupt.

    A passing cause (a full disk above all) is never reported as corruption: the directory would
    be set aside although nothing is wrong with it.
    """
    try:
        yield
    except HoldfastError:
        raise
    except rocksdict.DbClosedError as error:
        raise closed(path) from error
    except Exception as error:
        reason = str(error)
        details = {"path": str(path), "reason": reason}
        steps = [step for mark, step in _PASSING.items() if mark in reason]
        steps += [s for mark, s in _PASSING_AT_ONCE.items() if reason.startswith(mark)]
        if steps:
            raise Unavailable(f"cannot {action} {path}: {reason}; {steps[0]}", **details) from error
        if any(mark in reason for mark in _ASKED):
            raise InvalidRequest(f"cannot {action} {path}: {reason}", **details) from error
        raise StateCorrupt(
            f"cannot {action} {path}: {reason}; set the directory aside and restore", **details
        ) from error


def closed(path: Path) -> Unavailable:
    """The error of using an engine after `close`."""
    return Unavailable(f"the engine of {path} is closed: open the task again", path=str(path))
