"""Lost disk: the state folder is gone; a snapshot and the changelog's tail bring the state back."""

from __future__ import annotations

import shutil
import time
from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from benchmarks.measure import ALIKE, HOLDFAST, PEER, Contender, Measurement
from benchmarks.processes import Watch
from benchmarks.seeds import seeded
from benchmarks.suite.full_restore import kafka_streams_restore
from benchmarks.world import World

KEYS, TAIL = 10_000_000, 0.01


class LostDisk:
    """A `Benchmark`. Kafka Streams has no snapshots: it replays all of the same changelog."""

    name = "lost-disk"
    title = (
        f"start of the processes to all tasks open, {KEYS:,} distinct keys, no local state; for "
        f"Holdfast from a snapshot and the updates of {TAIL:.0%} of the keys since then"
    )
    unit = "s"
    more_is_better = False
    guarantees = ALIKE

    def prepare(self, world: World) -> None:
        """Fill the stores."""
        seeded(world, world.records(KEYS))

    def contenders(self) -> Mapping[str, Contender]:
        """Holdfast and Kafka Streams."""
        return {HOLDFAST: _holdfast, PEER: _kafka_streams}


def _holdfast(world: World) -> Measurement:
    seed = seeded(world, world.records(KEYS))
    holdfast, committer = seed.holdfast, seed.committer(world)
    holdfast.forget_snapshots()
    try:
        holdfast.start_hosts()
        committer.claim()
        began = time.monotonic()
        holdfast.snapshot()
        taken_s = time.monotonic() - began
        rng = np.random.default_rng()
        tail = np.sort(rng.permutation(seed.keys)[: int(TAIL * seed.keys)])
        seed.write(committer, tail)
        holdfast.kill()
        shutil.rmtree(holdfast.home / "state")
        with Watch() as watch:
            started = time.monotonic()
            holdfast.start_hosts()
            watch.add(*holdfast.children)
            committer.claim()
            seconds = time.monotonic() - started
            cpu_s, peak_mib = watch.cpu_s(), watch.peak_mib()
        seed.check(holdfast.sums())
    finally:
        committer.close()
        holdfast.stop()
    facts = {"snapshot s": taken_s, "updates since": len(tail), "keys per s": seed.keys / seconds}
    return Measurement(seconds, cpu_s, peak_mib, facts=facts)


def _kafka_streams(world: World) -> Measurement:
    seed = seeded(world, world.records(KEYS))
    measured = kafka_streams_restore(world, seed.query, seed.keys)
    seed.check(measured.same)
    return replace(measured, same={})  # rounds of the other side write between


LOST_DISK = LostDisk()
