"""The C library's heap: shared by the threads of a host, kept by workers of restores."""

from __future__ import annotations

import subprocess
import sys

import pytest

ARENAS = """
import ctypes, sys, tempfile, threading
from state_lib.heap import share_heap
if sys.argv[1] == "shared":
    assert share_heap()
libc = ctypes.CDLL(None)
libc.malloc.restype = libc.fopen.restype = ctypes.c_void_p
gate = threading.Barrier(9)

def hold():
    libc.malloc(ctypes.c_size_t(1000))
    gate.wait()

threads = [threading.Thread(target=hold) for _ in range(8)]
[t.start() for t in threads]
gate.wait()
[t.join() for t in threads]
with tempfile.NamedTemporaryFile() as file:
    stream = ctypes.c_void_p(libc.fopen(file.name.encode(), b"w"))
    assert libc.malloc_info(0, stream) == 0
    libc.fclose(stream)
    print(open(file.name).read().count("<heap "))
"""


def printed(script: str, how: str) -> int:
    """The number that it prints, in a process with a heap of its own."""
    command = [sys.executable, "-c", script, how]
    return int(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


@pytest.mark.skipif(sys.platform != "linux", reason="a setting of glibc")
def test_threads_share_two_arenas() -> None:
    assert printed(ARENAS, "alone") > 2
    assert printed(ARENAS, "shared") <= 2


FREES = """
import ctypes, sys
from state_lib.heap import keep_heap
if sys.argv[1] == "kept":
    assert keep_heap()
libc = ctypes.CDLL(None)
libc.malloc.restype, libc.free.argtypes = ctypes.c_void_p, [ctypes.c_void_p]
held = [libc.malloc(ctypes.c_size_t(1_000_000)) for _ in range(100)]
[ctypes.memset(at, 1, 1_000_000) for at in held]
[libc.free(at) for at in held]
resident = int(open("/proc/self/statm").read().split()[1]) * 4096
print(resident)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="a setting of glibc")
def test_freed_memory_is_kept() -> None:
    """Of 1 MB each, which by default is mapped, and unmapped, by itself."""
    assert printed(FREES, "alone") < 100e6 < printed(FREES, "kept")
