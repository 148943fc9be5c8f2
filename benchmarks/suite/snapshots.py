"""Snapshots: how long commits stall while one is taken, and what a second one uploads."""

from __future__ import annotations

import time
from collections.abc import Mapping

import numpy as np
import pyarrow as pa

from benchmarks.committer import Ids, batches
from benchmarks.machine import Stolen
from benchmarks.measure import ALIKE, HOLDFAST, Contender, Measurement
from benchmarks.pace import Pace, stall
from benchmarks.processes import Watch
from benchmarks.seeds import seeded
from benchmarks.world import TASKS, World

KEYS, CHANGED = 10_000_000, 0.01
PERIOD_S, CHUNK = 0.05, 500
"""Every task commits so often; so many keys in a commit of each of the four."""
WARM_S, QUIET_S = 5.0, 20.0


class Snapshots:
    """A `Benchmark`, of Holdfast alone: Kafka Streams has none to compare with."""

    name = "snapshot"
    title = (
        f"commit stall while a whole snapshot of {KEYS:,} keys is taken: the longest time from "
        f"when a commit was due to its acknowledgement, less the median of the {QUIET_S:.0f} s "
        f"before; each task commits {CHUNK // TASKS} keys every {PERIOD_S * 1000:.0f} ms; beside: "
        f"the part of the bytes that a second snapshot uploads once {CHANGED:.0%} of the keys have "
        "changed since the first"
    )
    unit = "ms"
    more_is_better = False
    guarantees = ALIKE

    def prepare(self, world: World) -> None:
        """Fill the stores."""
        seeded(world, world.records(KEYS))

    def contenders(self) -> Mapping[str, Contender]:
        """Holdfast."""
        return {HOLDFAST: _holdfast}


def _holdfast(world: World) -> Measurement:
    seed = seeded(world, world.records(KEYS))
    holdfast, committer = seed.holdfast, seed.committer(world)
    # What is written meanwhile belongs to the keys that have changed at the second snapshot.
    changed = np.sort(
        np.random.default_rng().permutation(seed.keys)[: max(TASKS, int(CHANGED * seed.keys))]
    )
    holdfast.forget_snapshots()
    try:
        with Watch() as watch:
            holdfast.start_hosts()
            watch.add(*holdfast.children)
            committer.claim()
            with Pace(committer, _parts(changed), PERIOD_S) as pace:
                time.sleep(WARM_S)
                pace.commits.clear()
                idle = Stolen()
                time.sleep(QUIET_S)
                pace.check()
                stolen_before, busy = idle.percent(), Stolen()
                started = time.monotonic()
                size = sum(job["size_bytes"] for job in holdfast.snapshot())
                ended, stolen = time.monotonic(), busy.percent()
            stalled = stall(pace.commits, started, ended)
            seed.write(committer, changed)
            again = sum(job["uploaded_bytes"] for job in holdfast.snapshot())
            cpu_s, peak_mib = watch.cpu_s(), watch.peak_mib()
        seed.check(holdfast.sums())
    finally:
        committer.close()
        holdfast.stop()
    facts = {
        "longest ms": stalled.worst * 1000,
        "median before ms": stalled.usual * 1000,
        "median meanwhile ms": stalled.meanwhile * 1000,
        "longest before ms": stalled.worst_before * 1000,
        "stolen % before": stolen_before,
        "stolen %": stolen,
        "snapshot s": ended - started,
        "MiB": size / 2**20,
        "second MiB": again / 2**20,
        "second %": 100 * again / size,
    }
    return Measurement(stalled.seconds * 1000, cpu_s, peak_mib, facts=facts)


def _parts(ids: Ids) -> list[list[pa.BinaryArray]]:
    """For each task its keys in small sorted parts; none is empty."""
    split = zip(*batches(np.random.default_rng().permutation(ids), CHUNK), strict=True)
    return [[keys for keys in parts if len(keys)] for parts in split]


SNAPSHOTS = Snapshots()
