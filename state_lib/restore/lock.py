"""One restore per task at a time, also across processes: a lock file beside the directory."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

from state_lib.errors import Busy, Unavailable


@contextlib.contextmanager
def restore_lock(path: Path) -> Iterator[None]:
    """Hold the lock of a task's directory; it ends with the process, however that ends.

    Raises:
        Busy: another restore of this task holds it; names its process.
        Unavailable: the file cannot be written (a full disk).
    """
    file = path.with_name(f"{path.name}.lock")
    held = _acquire(file)
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            file.unlink()  # still locked: others that opened it notice and open a new one
        os.close(held)


def _acquire(file: Path) -> int:
    while True:
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise Unavailable(
                f"cannot write {file}: {error.strerror}; free space or correct its rights, it is "
                "tried again",
                path=str(file),
            ) from error
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            holder = os.read(descriptor, 32).decode(errors="replace").strip() or "?"
            os.close(descriptor)
            task = f"{file.parent.name}/{file.stem}"
            raise Busy(
                f"a restore of {task} is running already (process {holder}): wait for it, "
                "`holdfast stores` shows the task's state",
                task=task,
                process=holder,
            ) from error
        if _is_at(descriptor, file):
            with contextlib.suppress(OSError):  # full disk: the holder's process id is missing then
                os.ftruncate(descriptor, 0)
                os.write(descriptor, str(os.getpid()).encode())
            return descriptor
        os.close(descriptor)  # removed by its holder in between: this lock has no effect


def _is_at(descriptor: int, file: Path) -> bool:
    try:
        return os.fstat(descriptor).st_ino == file.stat().st_ino
    except FileNotFoundError:
        return False
