"""Work on many files at once: hashing and transfers release the GIL, so threads do."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from pathlib import Path
from typing import TypeAlias, TypeVar

THREADS = 8
Progress: TypeAlias = Callable[[str, int, int], None]
"""Told ``(phase, bytes done, bytes in all)``, from one thread at a time; what it raises ends the
work."""
T = TypeVar("T")
R = TypeVar("R")


def silent(_phase: str, _done: int, _total: int) -> None:
    """A `Progress` that does nothing."""


def each(work: Callable[[T], R], items: Iterable[T], done: Callable[[T], None]) -> list[R]:
    """``work`` on every item, in order of the items; the first error ends what has not begun.

    ``done`` is called in this thread after each item that succeeded. So is ``work`` on a single
    item: a thread costs more than reading one manifest, and there may be a thousand tasks.
    """
    items = list(items)
    if len(items) == 1:
        found = [work(items[0])]
        done(items[0])
        return found
    with ThreadPoolExecutor(THREADS, thread_name_prefix="snapshot") as pool:
        futures = {pool.submit(work, item): item for item in items}
        left = set(futures)
        try:
            while left:
                finished, left = wait(left, timeout=1, return_when=FIRST_EXCEPTION)
                for future in finished:
                    future.result()
                    done(futures[future])
        except BaseException:
            pool.shutdown(wait=True, cancel_futures=True)
            raise
        return [future.result() for future in futures]


def sha256(path: Path) -> str:
    """Of a file's content, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
