"""Full restore: an application's changelog into an empty directory, by either side."""

from __future__ import annotations

import shutil
import time
from collections.abc import Mapping

from benchmarks.contenders.engine import Query
from benchmarks.contenders.holdfast import Holdfast
from benchmarks.contenders.kafka_streams import KafkaStreams
from benchmarks.measure import ALIKE, HOLDFAST, PEER, Contender, Measurement
from benchmarks.processes import Watch
from benchmarks.seeds import seeded
from benchmarks.world import World

KEYS = 4_000_000


class FullRestore:
    """A `Benchmark`. Both sides restore the very same changelog, which Holdfast wrote."""

    name = "full-restore"
    title = f"start of the processes to all tasks open, {KEYS:,} distinct keys, empty disk"
    unit = "s"
    more_is_better = False
    guarantees = ALIKE

    def prepare(self, world: World) -> None:
        """Write the changelog."""
        seeded(world, world.records(KEYS))

    def contenders(self) -> Mapping[str, Contender]:
        """Holdfast and Kafka Streams."""
        return {HOLDFAST: self._holdfast, PEER: self._kafka_streams}

    def _holdfast(self, world: World) -> Measurement:
        seed = seeded(world, world.records(KEYS))
        holdfast = Holdfast(world, seed.query)
        committer = seed.committer(world, holdfast)
        try:
            with Watch() as watch:
                started = time.monotonic()
                holdfast.start_hosts()
                watch.add(*holdfast.children)
                committer.claim()
                seconds = time.monotonic() - started
                cpu_s, peak_mib = watch.cpu_s(), watch.peak_mib()
            same = dict(holdfast.outcome())
        finally:
            committer.close()
            holdfast.stop()
        shutil.rmtree(holdfast.home)
        return Measurement(seconds, cpu_s, peak_mib, same, _rate(seed.keys, seconds))

    def _kafka_streams(self, world: World) -> Measurement:
        seed = seeded(world, world.records(KEYS))
        return kafka_streams_restore(world, seed.query, seed.keys)


def kafka_streams_restore(world: World, query: Query, keys: int) -> Measurement:
    """Kafka Streams from its start to RUNNING, with an empty state directory.

    What it holds then is in `Measurement.same`.
    """
    engine = KafkaStreams(world, query)
    try:
        with Watch() as watch:
            started = time.monotonic()
            engine.start()
            watch.add(*engine.children)
            engine.wait_running()
            seconds = time.monotonic() - started
            cpu_s, peak_mib = watch.cpu_s(), watch.peak_mib()
        restored, same = engine.restored(), dict(engine.outcome())
    finally:
        engine.stop()
    shutil.rmtree(engine.home)
    facts = {**_rate(keys, seconds), "records replayed": restored}
    return Measurement(seconds, cpu_s, peak_mib, same, facts)


def _rate(keys: int, seconds: float) -> dict[str, float]:
    return {"keys per s": keys / seconds}


FULL_RESTORE = FullRestore()
