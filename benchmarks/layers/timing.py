"""Times one operation of a layer."""

from __future__ import annotations

import time
import tracemalloc
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median

REPEATS = 5


@dataclass(frozen=True)
class Timing:
    """Medians of several repeats.

    Attributes:
        layer, operation: what was timed.
        rows: of one repeat; 0 for what is timed as a whole.
        seconds: wall time.
        cpu_s: of this process, all threads.
        peak_bytes: greatest memory of Python's objects; 0 where nobody looked.
    """

    layer: str
    operation: str
    rows: int
    seconds: float
    cpu_s: float
    peak_bytes: int = 0


def timed(layer: str, operation: str, rows: int, work: Callable[[int], object]) -> Timing:
    """Run ``work(repeat)`` once to get warm and then several times."""
    work(0)
    wall, cpu = [], []
    for repeat in range(1, REPEATS + 1):
        started, used = time.perf_counter(), time.process_time()
        work(repeat)
        wall.append(time.perf_counter() - started)
        cpu.append(time.process_time() - used)
    return Timing(layer, operation, rows, median(wall), median(cpu))


def peak_bytes(work: Callable[[], object]) -> int:
    """Greatest memory of the Python objects that one run makes; it takes several times as long."""
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
