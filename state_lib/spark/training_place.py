"""Where a training runs (`state_lib.spark.training`): alone, and leaving nothing behind.

All that it starts carries a mark, and its folder has that mark in its name. It is one mark for each
environment: who has that environment's lock may end what carries it, and remove the folder.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import shutil
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

from state_lib.errors import Unavailable
from state_lib.processes import KILL_WAIT_S, end, surely_marked
from state_lib.stack import class_archive

VARIABLE = "HOLDFAST_TRAINING"
_ENDS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


@contextlib.contextmanager
def unwinding() -> Iterator[None]:
    """A signal to end unwinds all that was begun; a second one does not hinder that."""

    def leave(_number: int, _frame: FrameType | None) -> None:
        for number in before:
            signal.signal(number, signal.SIG_IGN)
        raise SystemExit(1)

    # Ignored signals stay ignored: it was started by `nohup`, or with `&` by a shell.
    before = {n: old for n in _ENDS if (old := signal.getsignal(n)) != signal.SIG_IGN}
    try:
        for number in before:
            signal.signal(number, leave)
        yield
    finally:
        for number, old in before.items():
            signal.signal(number, old)


@contextlib.contextmanager
def alone() -> Iterator[bool]:
    """Whether nobody else makes one; what a killed one has left is gone then.

    Raises:
        Unavailable: a process of it survives SIGKILL.
    """
    class_archive.folder().mkdir(parents=True, exist_ok=True)
    with (class_archive.folder() / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
        else:
            _end_marked()
            for folder in Path(tempfile.gettempdir()).glob(f"{_prefix()}*"):
                shutil.rmtree(folder, ignore_errors=True)
            for left in class_archive.folder().glob(".making-*.jsa"):
                left.unlink()
            yield True


@contextlib.contextmanager
def place() -> Iterator[Path]:
    """A folder. It is removed at the end, after all that was started meanwhile has ended."""
    with tempfile.TemporaryDirectory(prefix=_prefix()) as folder:
        os.environ[VARIABLE] = mark()
        try:
            yield Path(folder)
        finally:
            del os.environ[VARIABLE]
            _end_marked()


def mark() -> str:
    """What carries this in `VARIABLE` belongs to a training for this environment."""
    return hashlib.sha256(str(class_archive.folder().resolve()).encode()).hexdigest()[:16]


def _prefix() -> str:
    return f"holdfast-training-{mark()}-"


def _end_marked() -> None:
    """End all of them: one may start another while it is looked for."""
    while left := surely_marked(VARIABLE, mark()):
        if end(left, signal.SIGKILL, KILL_WAIT_S):
            raise Unavailable(f"processes {[p.pid for p in left]} do not end even on SIGKILL")
