"""Reads of whole stores as DataFrames: live ones, and their snapshots."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path

from benchmarks.measure import ALIKE, HOLDFAST, Contender, Measurement
from benchmarks.processes import Child, Watch
from benchmarks.seeds import Seed, seeded
from benchmarks.world import World

KEYS = 10_000_000
SNAPSHOT = f"{HOLDFAST}, snapshot"
JOB = Path(__file__).parents[1] / "jobs" / "read_store.py"
WAYS = {"first": "first", "values": "without _metadata", "sum": "count and sum"}
"""What the job does beside the read that counts, and how the report calls it."""


class Read:
    """A `Benchmark`, of Holdfast alone."""

    name = "read"
    title = (
        f"spark.read.format('holdfast') of {KEYS:,} entries, every column of every row, from "
        "load() to the end, in a JVM that has done so once; beside: that first time, and less of it"
    )
    unit = "rows/s"
    more_is_better = True
    guarantees = ALIKE

    def prepare(self, world: World) -> None:
        """Fill the stores, and take a snapshot of them."""
        seed = seeded(world, world.records(KEYS))
        committer = seed.committer(world)
        seed.holdfast.start_hosts()
        try:
            committer.claim()
            seed.holdfast.snapshot()
        finally:
            committer.close()
            seed.holdfast.stop()

    def contenders(self) -> Mapping[str, Contender]:
        """The live store, and the snapshot without hosts."""
        return {HOLDFAST: _live, SNAPSHOT: partial(_measure, snapshot="latest", hosts=[])}


def _live(world: World) -> Measurement:
    seed = seeded(world, world.records(KEYS))
    committer = seed.committer(world)
    seed.holdfast.start_hosts()
    try:
        committer.claim()
        return _measure(world, hosts=seed.holdfast.hosts)
    finally:
        committer.close()
        seed.holdfast.stop()


def _measure(world: World, hosts: list[Child], snapshot: str = "") -> Measurement:
    seed = seeded(world, world.records(KEYS))
    job = _job(world, seed, snapshot)
    try:
        found = {"first": job.wait(event="read", what="first")}
        with Watch() as watch:
            watch.add(job, *hosts)
            watch.sample()
            began = time.monotonic()
            again = job.wait(event="read", what="again")
            cpu_s, peak_mib = watch.cpu_s(began), watch.peak_mib()
        found |= {way: job.wait(event="read", what=way) for way in WAYS if way not in found}
    finally:
        job.stop()
    same = {"entries": found["sum"]["rows"], "total": found["sum"]["total"]}
    seed.check(same)
    facts = {f"{WAYS[way]}, rows/s": seed.keys / one["seconds"] for way, one in found.items()}
    return Measurement(seed.keys / again["seconds"], cpu_s, peak_mib, same, facts)


def _job(world: World, seed: Seed, snapshot: str) -> Child:
    settings = seed.holdfast.settings.as_environment()
    query = {
        "BENCH_APP": seed.query.app,
        "BENCH_STORE": seed.query.STORE,
        "BENCH_SNAPSHOT": snapshot,
    }
    log = seed.holdfast.home / f"{world.name('read')}.log"
    return Child("reader", [sys.executable, str(JOB)], log, settings | query)


READ = Read()
