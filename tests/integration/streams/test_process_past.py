"""A restore to the past with a processor: batches and ticks are repeated in their order."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path

import orjson
import pytest
from pyspark import cloudpickle
from pyspark.sql import SparkSession

from state_lib.changelog.progress import ProgressLog
from state_lib.kafka import Kafka
from state_lib.spark.align import align
from tests.support import processors
from tests.support.hosts import publish
from tests.support.process_world import BEATS, LAST, PARTITIONS, T0, Told, world
from tests.support.processors import HOUR


@pytest.fixture(autouse=True, scope="module")
def _shipped() -> Iterator[None]:
    """Workers need not find the module: it is pickled whole, as a job's own file is."""
    cloudpickle.register_pickle_by_value(processors)
    yield
    cloudpickle.unregister_pickle_by_value(processors)


def silent(told: Told) -> Counter[str]:
    """How often each device was said to be silent."""
    return Counter(orjson.loads(v)["device"] for some in told["outputs"] for _, v, _ in some)


@pytest.mark.parametrize(
    "back", [range(PARTITIONS), pytest.param([0], marks=pytest.mark.full)], ids=["all", "one"]
)
def test_ticks_are_repeated_in_their_order(
    spark: SparkSession, kafka: Kafka, name: str, tmp_path: Path, back: Sequence[int]
) -> None:
    """A beat behind a tick would put off what the tick told, were it repeated before it."""
    with world(spark, kafka, name, tmp_path) as one:
        one.stream(BEATS[:20])
        snapshots, then = {p: one.snapshot(p) for p in back}, one.told()
        one.stream(BEATS[20:] + LAST)
        assert one.batches.tick()
        one.stream([("d0", T0 + 3 * HOUR, 0), ("d1", T0 + 3 * HOUR + 1000, 1)])
        one.stream([("later", T0 + 5 * HOUR, p) for p in range(PARTITIONS)])
        assert one.batches.tick()
        now, records = one.told(), ProgressLog(kafka, name).read
        said = {"d0": 2, "d1": 2, "d2": 1, "d3": 1, "d4": 1, "late": 1}
        assert silent(now) == said

        one.go_back(snapshots)
        gone, stores = one.told(), len(then["stores"]) // PARTITIONS
        for p in range(PARTITIONS):
            expected, here = (then if p in back else now), slice(p * stores, (p + 1) * stores)
            assert gone["stores"][here] == expected["stores"][here]
            assert (gone["clock"][p], gone["due"][p]) == (expected["clock"][p], expected["due"][p])

        before = len(records())
        with closing(one.driver(publish(one.app))) as other:
            assert align(other, one.read, records, lambda: False)
            repeated = [r for r in records()[before:] if r.aligned]
            assert [r.tick for r in repeated] == [False, True, False, False, True]
            assert one.told() == now
            one.batches = other
            one.stream([("end", T0 + 9 * HOUR, p) for p in range(PARTITIONS)])
            assert other.tick()
            assert silent(one.told()) == said | {"later": 1}, "nothing twice"
