"""Local restart: hosts that were killed go on from the state on their own disks."""

from __future__ import annotations

import shutil
import time
from collections.abc import Mapping

from benchmarks.contenders.kafka_streams import KafkaStreams
from benchmarks.measure import ALIKE, HOLDFAST, PEER, Contender, Measurement
from benchmarks.processes import Watch
from benchmarks.seeds import seeded
from benchmarks.world import World
from state_lib.config import Settings
from state_lib.host.tasks import SOONER

KEYS, RATE = 10_000_000, 10_000
FLUSH_S: float = Settings.model_fields["flush_interval_s"].default
SOON_S = FLUSH_S / SOONER
"""After which a task with so much to replay is flushed."""
KILLED_AT = 0.75
"""Part of that after which the hosts are killed. Flushes count from the start of the hosts, which
comes some seconds before the first update: with much more, a flush would come in between."""


class LocalRestart:
    """A `Benchmark`. Kafka Streams has no tail: nobody writes to its source."""

    name = "local-restart"
    title = (
        f"start of the processes after a SIGKILL to all tasks open, {KEYS:,} keys on disk; for "
        f"Holdfast after {KILLED_AT * SOON_S:.0f} s with {RATE:,} updates/s, at its flush "
        f"interval of {FLUSH_S:.0f} s ({SOON_S:.0f} s with so much to replay)"
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
    soon_s = max(2.0, SOON_S * min(1.0, world.scale))
    flush_s = SOONER * soon_s
    holdfast.settings = holdfast.settings.model_copy(update={"flush_interval_s": flush_s})
    try:
        holdfast.start_hosts()
        committer.claim()
        updates = seed.update(committer, world.records(RATE), KILLED_AT * soon_s)
        holdfast.kill()
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
    return Measurement(seconds, cpu_s, peak_mib, facts={"updates before": updates})


def _kafka_streams(world: World) -> Measurement:
    seed = seeded(world, world.records(KEYS))
    engine = KafkaStreams(world, seed.query)
    try:
        engine.start()
        engine.wait_running()
        engine.kill()
        with Watch() as watch:
            started = time.monotonic()
            engine.start()
            watch.add(*engine.children)
            engine.wait_running()
            seconds = time.monotonic() - started
            cpu_s, peak_mib = watch.cpu_s(), watch.peak_mib()
        facts = {"records replayed": engine.restored()}
        seed.check(engine.outcome())
    finally:
        engine.stop()
    shutil.rmtree(engine.home)
    return Measurement(seconds, cpu_s, peak_mib, facts=facts)


LOCAL_RESTART = LocalRestart()
