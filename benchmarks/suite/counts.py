"""Counts: records per second between two positions, after warm-up."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from functools import partial

from benchmarks.contenders.engine import Query, StreamEngine
from benchmarks.contenders.holdfast import Holdfast
from benchmarks.contenders.kafka_streams import TUNED, KafkaStreams
from benchmarks.contenders.spark_alone import SparkAlone
from benchmarks.measure import HOLDFAST, PEER, Contender, Measurement
from benchmarks.positions import Positions
from benchmarks.processes import Watch
from benchmarks.world import World

RECORDS, WARM_UP = 4_000_000, 1_000_000
WINDOW_MS = 60_000
Make = Callable[[World, Query], StreamEngine]


class Counts:
    """A `Benchmark`: the query over a source that is there already, to its end.

    Args:
        name: of the benchmark.
        keys: kind of source, see `benchmarks.sources`.
        window_ms: 0 for a plain count.
    """

    unit = "records/s"
    more_is_better = True

    def __init__(self, name: str, keys: str, window_ms: int = 0) -> None:
        self.name = name
        self._keys, self._window_ms = keys, window_ms
        what = f"count by key in windows of {window_ms // 1000} s" if window_ms else "count by key"
        drawn = "all keys distinct" if keys == "distinct" else "Zipf(1.2) keys"
        self.title = (
            f"{what}, {drawn}, exactly once, {RECORDS:,} records after {WARM_UP:,} of warm-up"
        )

    def prepare(self, world: World) -> None:
        """Load the source."""
        world.source(self._keys, world.records(RECORDS) + world.records(WARM_UP))

    def contenders(self) -> Mapping[str, Contender]:
        """Holdfast, Kafka Streams as it comes and tuned, Spark's own state."""
        tuned = partial(KafkaStreams, properties=TUNED)
        engines: dict[str, Make] = {
            HOLDFAST: Holdfast,
            PEER: KafkaStreams,
            f"{PEER}, tuned": tuned,
            "spark alone": SparkAlone,
        }
        return {name: partial(self._measure, make=make) for name, make in engines.items()}

    def _measure(self, world: World, make: Make) -> Measurement:
        warm_up, records = world.records(WARM_UP), world.records(RECORDS)
        topic = world.source(self._keys, warm_up + records)
        app = world.name(f"bench-{self.name}")
        engine = make(world, Query(app, topic, self._window_ms))
        positions = Positions(engine.position)
        try:
            with Watch() as watch:
                engine.start()
                watch.add(*engine.children)
                positions.until(warm_up + records, engine.check)
                span = positions.between(warm_up, warm_up + records)
                cpu_s, peak_mib = watch.cpu_s(span.start[0], span.end[0]), watch.peak_mib()
            same = dict(engine.outcome())
        finally:
            engine.stop()
            world.forget(app)
        shutil.rmtree(engine.home)
        first = positions.between(1, 1).start[0] - positions.samples[0][0]
        facts = {"first commit after s": first, "commits every s": positions.commit_every_s(span)}
        return Measurement(span.per_second, cpu_s, peak_mib, same, facts)


ZIPF = Counts("count-zipf", "zipf")
DISTINCT = Counts("count-distinct", "distinct")
WINDOWED = Counts("count-windowed", "zipf", WINDOW_MS)
