"""Temporary directories of which none is left, also by a process that was killed."""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory, gettempdir

_LOCK = "held"


@contextmanager
def scratch(prefix: str, folder: Path | str | None) -> Iterator[Path]:
    """A directory that is empty and vanishes, its process being killed at the latest with the next.

    Args:
        prefix: of its name; others of this prefix whose process is gone are removed first.
        folder: where it is made; None: where the system has such.
    """
    _sweep(prefix, Path(folder or gettempdir()))
    with TemporaryDirectory(prefix=prefix, dir=folder) as made:
        held = _hold(Path(made))
        try:
            path = Path(made) / "in"
            path.mkdir()
            yield path
        finally:
            os.close(held)


def _hold(folder: Path) -> int:
    """A lock that ends with this process. It has its name only once it is held."""
    new = folder / f"{_LOCK}.new"
    descriptor = os.open(new, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    new.rename(folder / _LOCK)
    return descriptor


def _sweep(prefix: str, root: Path) -> None:
    """What is somebody else's, or was never held, stays."""
    for file in root.glob(f"{prefix}*/{_LOCK}"):
        with suppress(OSError):
            descriptor = os.open(file, os.O_RDWR | os.O_CLOEXEC)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(file.parent)
            finally:
                os.close(descriptor)
