"""The C heap of a host: few arenas, so that memory which one thread freed serves the others."""

from __future__ import annotations

import ctypes
import sys

ARENAS = 2
_M_ARENA_MAX = -8  # malloc.h of glibc


def share_heap(arenas: int = ARENAS) -> bool:
    """Let all threads share ``arenas`` arenas of glibc's malloc; call it before threads start.

    By default each thread uses one of up to 16 arenas, and memory that a large batch freed in one
    of them is not reused by threads of others: with batches of 2 M keys a host grew to 2.4 GiB
    instead of 1.4, and was no faster (`benchmarks/README.md`, A host's memory).

    Returns:
        Whether the C library knows the setting (glibc does, musl and macOS do not).
    """
    if sys.platform != "linux":
        return False
    libc = ctypes.CDLL(None)
    mallopt = getattr(libc, "mallopt", None)
    return bool(mallopt and mallopt(_M_ARENA_MAX, arenas))
