"""Snapshots: how long commits wait while one is taken, and what a second one uploads."""

from __future__ import annotations

import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from benchmarks.measure import HOLDFAST, Contender, Measurement
from benchmarks.processes import Watch
from benchmarks.seeds import seeded
from benchmarks.world import World

KEYS, RATE, CHANGED = 10_000_000, 10_000, 0.01
QUIET_S, UPDATE_S = 20.0, 2.0


class Snapshots:
    """A `Benchmark`, of Holdfast alone: Kafka Streams has none to compare with."""

    name = "snapshot"
    title = (
        f"longest commit of a task while a snapshot of {KEYS:,} keys is taken, {RATE:,} updates/s; "
        f"beside: the longest in {QUIET_S:.0f} s without one, and the part of the bytes that a "
        f"second snapshot uploads once {CHANGED:.0%} of the keys have changed"
    )
    unit = "ms"
    more_is_better = False

    def prepare(self, world: World) -> None:
        """Fill the stores."""
        seeded(world, world.records(KEYS))

    def contenders(self) -> Mapping[str, Contender]:
        """Holdfast."""
        return {HOLDFAST: _holdfast}


def _holdfast(world: World) -> Measurement:
    seed = seeded(world, world.records(KEYS))
    holdfast, committer = seed.holdfast, seed.committer(world)
    rate, longest, ended = world.records(RATE), list[float](), list[float]()
    try:
        with Watch() as watch, ThreadPoolExecutor(1) as pool:
            holdfast.start_hosts()
            watch.add(*holdfast.children)
            committer.claim()
            seed.update(committer, rate, QUIET_S, longest)
            quiet = max(longest)
            longest.clear()
            started = time.monotonic()
            taking = pool.submit(holdfast.snapshot)
            taking.add_done_callback(lambda _: ended.append(time.monotonic()))
            while not (taking.done() and longest):
                seed.update(committer, rate, UPDATE_S, longest)
            seconds, busy = ended[0] - started, max(longest)
            size = sum(job["size_bytes"] for job in taking.result())
            ids = np.random.default_rng().permutation(seed.keys)[: int(CHANGED * seed.keys)]
            seed.write(committer, np.sort(ids))
            again = sum(job["uploaded_bytes"] for job in holdfast.snapshot())
            cpu_s, peak_mib = watch.cpu_s(), watch.peak_mib()
        seed.check(holdfast.outcome())
    finally:
        committer.close()
        holdfast.stop()
    facts = {
        "without ms": quiet * 1000,
        "snapshot s": seconds,
        "MiB": size / 2**20,
        "second MiB": again / 2**20,
        "second %": 100 * again / size,
    }
    return Measurement(busy * 1000, cpu_s, peak_mib, facts=facts)


SNAPSHOTS = Snapshots()
