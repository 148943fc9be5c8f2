"""How slow this machine is now: what the limits of tests and stages are multiplied by."""

from __future__ import annotations

import hashlib
import os
import time
from concurrent.futures import ProcessPoolExecutor

MOST = 4.0
VARIABLE = "TESTS_SLOWNESS"
IDLE_S = 0.45
"""What `_work` takes in two processes on an idle machine of two cores."""


def _work(_number: int) -> float:
    started = time.perf_counter()
    data = b""
    for _ in range(1_000_000):
        data = hashlib.sha256(data).digest()
    return time.perf_counter() - started


def measure() -> float:
    """1 for an idle machine as fast as ours or faster, 4 for one four times as slow or slower."""
    cores = min(2, os.cpu_count() or 1)
    with ProcessPoolExecutor(cores) as pool:
        slowest = max(pool.map(_work, range(cores)))
    return min(MOST, max(1.0, slowest / IDLE_S))
