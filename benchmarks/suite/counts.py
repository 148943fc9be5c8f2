"""Counts: records per second between two positions, after warm-up."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from functools import partial

from benchmarks.contenders.engine import Query, StreamEngine
from benchmarks.contenders.guarantees import (
    GUARANTEES,
    SPARK_GROUP,
    SPARK_PYTHON,
    SPARK_TRANSFORM,
)
from benchmarks.contenders.guarantees import TUNED as PEER_TUNED
from benchmarks.contenders.holdfast import PROCESSOR, Holdfast
from benchmarks.contenders.kafka_streams import TUNED, KafkaStreams
from benchmarks.contenders.spark_alone import GROUP, PYTHON, SparkAlone
from benchmarks.measure import HOLDFAST, PEER, Contender, Measurement
from benchmarks.positions import Positions
from benchmarks.processes import Watch
from benchmarks.world import World

ZIPF_RECORDS, DISTINCT_RECORDS, WARM_UP = 24_000_000, 12_000_000, 2_000_000
"""Long enough that a JVM is warm for most of it, and that batches have grown."""
PROCESSED_RECORDS, PROCESSED_WARM_UP = 400_000, 100_000
"""Spark calls a processor in Python some thousand times a second. Its batches are as large as the
warm-up: a rate is one between commits, and there must be several."""
WINDOW_MS = 60_000
Make = Callable[[World, Query], StreamEngine]
ENGINES: Mapping[str, Make] = {
    HOLDFAST: Holdfast,
    PEER: KafkaStreams,
    PEER_TUNED: partial(KafkaStreams, properties=TUNED),
    SPARK_TRANSFORM: SparkAlone,
    SPARK_GROUP: partial(SparkAlone, verb=GROUP),
}
"""Holdfast, Kafka Streams as it comes and tuned, Spark's own state by both its verbs."""
PROCESSORS: Mapping[str, Make] = {
    HOLDFAST: partial(Holdfast, counter=PROCESSOR),
    SPARK_PYTHON: partial(SparkAlone, verb=PYTHON, batch=PROCESSED_WARM_UP),
    SPARK_TRANSFORM: partial(SparkAlone, batch=PROCESSED_WARM_UP),
}
"""The same processor in Python, by Holdfast and by Spark, and beside it Spark's in Java."""


class Counts:
    """A `Benchmark`: the query over a source that is there already, to its end.

    Args:
        name: of the benchmark.
        keys: kind of source, see `benchmarks.sources`.
        records: how many count for the rate, after `WARM_UP` others.
        window_ms: 0 for a plain count.
        warm_up: how many come before them.
        engines: that count, by name; by themselves those of `ENGINES`.
        by: what the title says of how they count.
    """

    unit = "records/s"
    more_is_better = True

    def __init__(  # noqa: PLR0913 - all but three have what most want
        self,
        name: str,
        keys: str,
        records: int,
        window_ms: int = 0,
        *,
        warm_up: int = WARM_UP,
        engines: Mapping[str, Make] | None = None,
        by: str = "",
    ) -> None:
        self.name = name
        self._keys, self._records, self._window_ms = keys, records, window_ms
        self._warm_up, self._engines = warm_up, ENGINES if engines is None else engines
        self.guarantees: Mapping[str, str] = {name: GUARANTEES[name] for name in self._engines}
        what = f"count by key in windows of {window_ms // 1000} s" if window_ms else "count by key"
        drawn = "all keys distinct" if keys == "distinct" else "Zipf(1.2) keys"
        self.title = f"{what}{by}, {drawn}, {records:,} records after {warm_up:,} of warm-up"

    def prepare(self, world: World) -> None:
        """Load the source."""
        world.source(self._keys, world.records(self._records) + world.records(self._warm_up))

    def contenders(self) -> Mapping[str, Contender]:
        """The engines."""
        return {name: partial(self._measure, make=make) for name, make in self._engines.items()}

    def _measure(self, world: World, make: Make) -> Measurement:
        warm_up, records = world.records(self._warm_up), world.records(self._records)
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
        started = positions.samples[0][0]
        facts = {
            "with start, records/s": span.end[1] / (span.end[0] - started),
            "first commit after s": positions.between(1, 1).start[0] - started,
            "commits every s": positions.commit_every_s(span),
        }
        return Measurement(span.per_second, cpu_s, peak_mib, same, facts)


ZIPF = Counts("count-zipf", "zipf", ZIPF_RECORDS)
DISTINCT = Counts("count-distinct", "distinct", DISTINCT_RECORDS)
WINDOWED = Counts("count-windowed", "zipf", ZIPF_RECORDS // 2, WINDOW_MS)
PROCESSED = Counts(
    "process-distinct",
    "distinct",
    PROCESSED_RECORDS,
    warm_up=PROCESSED_WARM_UP,
    engines=PROCESSORS,
    by=", a value state and an output row for each, by transformWithState",
)
