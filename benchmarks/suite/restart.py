"""A crash of everything: from its SIGKILL to the first commit of what is started again."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Mapping
from functools import partial

from benchmarks.contenders.engine import Query, StreamEngine
from benchmarks.contenders.holdfast import Holdfast
from benchmarks.contenders.kafka_streams import TUNED, KafkaStreams
from benchmarks.feed import Feed
from benchmarks.measure import ALIKE, HOLDFAST, PEER, Contender, Measurement
from benchmarks.positions import Positions
from benchmarks.processes import Watch
from benchmarks.world import BATCH, TASKS, World

KEYS, RATE = 1_000_000, 10_000
SETTLED_S = 3
"""So long a stream has kept up with its source before it is killed."""
Make = Callable[[World, Query], StreamEngine]


class Restart:
    """A `Benchmark`. Records go on arriving while nobody reads them."""

    name = "restart"
    title = (
        f"SIGKILL of all processes, started again at once, to the first commit; {KEYS:,} keys "
        f"held, {RATE:,} records/s arriving"
    )
    unit = "s"
    more_is_better = False
    guarantees = ALIKE

    def prepare(self, world: World) -> None:
        """Nothing is shared: each run has a source of its own, which goes on growing."""

    def contenders(self) -> Mapping[str, Contender]:
        """Holdfast, Kafka Streams as it comes, and with a short session."""
        engines: dict[str, Make] = {
            # As large as a user's, at any scale.
            HOLDFAST: partial(Holdfast, max_offsets_per_trigger=BATCH),
            PEER: KafkaStreams,
            f"{PEER}, tuned": partial(KafkaStreams, properties=TUNED),
        }
        return {name: partial(self._measure, make=make) for name, make in engines.items()}

    def _measure(self, world: World, make: Make) -> Measurement:
        keys, rate = world.records(KEYS), world.records(RATE)
        app = world.name("bench-restart")
        topic = world.name("fed")
        feed = Feed(world.kafka, topic, TASKS, keys, rate)
        engine = make(world, Query(app, topic))
        positions = Positions(engine.position)
        try:
            engine.start()
            positions.until(keys, engine.check)
            with feed:
                positions.until(keys + SETTLED_S * rate, engine.check)
                engine.kill()
                before = engine.position()
                with Watch() as watch:
                    started = time.monotonic()
                    engine.start()
                    watch.add(*engine.children)
                    again = Positions(engine.position)
                    again.until(before + 1, engine.check)
                    seconds = again.samples[-1][0] - started
                    cpu_s, peak_mib = watch.cpu_s(), watch.peak_mib()
            again.until(feed.sent, engine.check)
            outcome = engine.outcome()
        finally:
            engine.stop()
            world.forget(app)
        shutil.rmtree(engine.home)
        # Runs see different numbers of records: what must be the same is that none is off.
        same = {"records counted wrongly": outcome["total"] - feed.sent}
        return Measurement(seconds, cpu_s, peak_mib, same)


RESTART = Restart()
