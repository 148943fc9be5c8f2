"""The C heap of a process, as glibc's malloc keeps it; other C libraries know none of this."""

from __future__ import annotations

import ctypes
import sys

ARENAS = 2
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -3, -8  # malloc.h of glibc


def share_heap(arenas: int = ARENAS) -> bool:
    """Let all threads share ``arenas`` arenas of malloc; call it before threads start.

    By default each thread uses one of up to 16 arenas, and memory that a large batch freed in one
    of them is not reused by threads of others: with batches of 2 M keys a host grew to 2.4 GiB
    instead of 1.4, and was no faster (`benchmarks/README.md`, A host's memory).

    Returns:
        Whether the C library knows the setting (glibc does, musl and macOS do not).
    """
    return _set({_M_ARENA_MAX: arenas})


def keep_heap() -> bool:
    """Give no freed memory back: for a process that needs as much again, and ends soon.

    Pages that come and go between two runs cost a restore 4 % [tried].

    Returns:
        Whether the C library knows the settings.
    """
    return _set({_M_TRIM_THRESHOLD: 256 << 20, _M_MMAP_THRESHOLD: 32 << 20})  # 32 MiB: its maximum


def _set(values: dict[int, int]) -> bool:
    if sys.platform != "linux":
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    return bool(mallopt and all(mallopt(name, value) for name, value in values.items()))
