"""All benchmarks, in the order in which they run."""

from __future__ import annotations

from benchmarks.measure import Benchmark
from benchmarks.suite import counts
from benchmarks.suite.full_restore import FULL_RESTORE
from benchmarks.suite.local_restart import LOCAL_RESTART
from benchmarks.suite.lost_disk import LOST_DISK
from benchmarks.suite.read import READ
from benchmarks.suite.restart import RESTART
from benchmarks.suite.snapshots import SNAPSHOTS

SUITE: tuple[Benchmark, ...] = (
    counts.ZIPF,
    counts.DISTINCT,
    counts.WINDOWED,
    counts.PROCESSED,
    FULL_RESTORE,
    RESTART,
    LOCAL_RESTART,
    LOST_DISK,
    SNAPSHOTS,
    READ,
)
