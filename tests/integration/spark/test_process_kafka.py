"""Processors over Kafka, hosts and Spark: as in the test driver, and a tick is for every task."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import orjson
import pytest
from pyspark import cloudpickle
from pyspark.sql import SparkSession

from state_lib import Application
from state_lib.changelog.progress import ProgressLog
from state_lib.changelog.topics import progress_topic
from state_lib.errors import Realign
from state_lib.kafka import Kafka
from state_lib.spark import batches as of_batches
from state_lib.spark.align import align
from state_lib.spark.process.initial import initial_rows, take_initial_states
from tests.support import processors
from tests.support.hosts import publish
from tests.support.lost import made_again
from tests.support.process_world import BEATS, CUTS, LAST, PARTITIONS, T0, in_memory, world
from tests.support.processors import BEAT, HOUR


@pytest.fixture(autouse=True, scope="module")
def _shipped() -> Iterator[None]:
    """Workers need not find the module: it is pickled whole, as a job's own file is."""
    cloudpickle.register_pickle_by_value(processors)
    yield
    cloudpickle.unregister_pickle_by_value(processors)


def test_it_is_the_same_over_kafka(
    spark: SparkSession, kafka: Kafka, name: str, tmp_path: Path
) -> None:
    with world(spark, kafka, name, tmp_path) as one:
        begin = 0
        for end in CUTS:
            one.stream((BEATS + LAST)[begin:end])
            begin = end
        assert one.batches.tick(), "in Spark"
        assert not one.batches.tick(), "nothing is due"
        found = one.told()
        devices = {orjson.loads(v)["device"] for some in found["outputs"] for _, v, _ in some}
        assert devices == {f"d{i}" for i in range(5)}
        assert found == in_memory(spark, name, one.source)


def test_a_tick_that_one_task_took_is_repeated_for_the_other_before_rows(
    spark: SparkSession, kafka: Kafka, name: str, tmp_path: Path
) -> None:
    """The driver was killed in its middle; rows that came since would put silence off."""
    with world(spark, kafka, name, tmp_path) as one:
        one.stream(BEATS + LAST)
        batches, here = one.batches, one.batches.standing.positions
        tick = replace(batches._plan(here, here, T0 + 3 * HOUR), tick=True)
        tick = replace(tick, recorded=batches._progress.append(tick.record()), tasks=(0,))
        batches._run(lambda: batches._combined(None, tick), tick)
        half = one.told()
        assert min(half["clock"]) < T0 + 3 * HOUR == half["clock"][0]

        with closing(one.driver(publish(one.app))) as other:
            records = ProgressLog(kafka, name).read
            assert align(other, one.read, records, lambda: False)
            assert [m.recorded for m in other.standing.markers] == [tick.recorded] * PARTITIONS
            found = one.told()
            assert found["clock"] == [T0 + 3 * HOUR] * PARTITIONS
            times = {orjson.loads(v)["device"]: t for some in found["outputs"] for _, v, t in some}
            last = {device: at + HOUR for device, at, _ in BEATS}
            assert times == last
            one.batches = other
            one.stream([("d0", T0 + 3 * HOUR, 0)])
            assert one.told()["outputs"] == found["outputs"], "no timer runs twice"


def test_a_leap_of_the_wall_clock_stays_for_processing_time_alone(
    spark: SparkSession,
    kafka: Kafka,
    name: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Rows of the future are judged by the clock of the wall, which is right again."""
    with world(spark, kafka, name, tmp_path) as one:
        with monkeypatch.context() as leaping:
            leaping.setattr(of_batches, "now_ms", lambda: 2_200_000_000_000)
            one.stream(BEATS[:2])
        one.stream(BEATS[2:4])
        leapt, after = ProgressLog(kafka, name).read()[-2:]
        assert leapt.now == leapt.batch_time == after.batch_time == 2_200_000_000_000
        assert after.now < leapt.now
        assert {m.batch_time_ms for m in one.batches.standing.markers} == {leapt.now}


def test_ticks_run_and_are_heard_in_a_progress_topic_that_was_made_anew(
    spark: SparkSession, kafka: Kafka, name: str, tmp_path: Path
) -> None:
    """Markers know offsets of the old one, that are far beyond those of the new one."""
    with world(spark, kafka, name, tmp_path) as one:
        for _ in range(20):
            one.batches._progress.append({"kind": "what came before"})
        one.stream(BEATS + LAST)
        assert one.batches.standing.recorded > 20
        made_again(one.app, progress_topic(name))
        with closing(one.driver(publish(one.app))) as other:
            records = ProgressLog(kafka, name).read
            assert align(other, one.read, records, lambda: False)
            assert other.tick()
            assert not other.tick(), "nothing is due"
            found = one.told()
            assert found["clock"] == [T0 + 3 * HOUR] * PARTITIONS
            devices = {orjson.loads(v)["device"] for some in found["outputs"] for _, v, _ in some}
            assert devices == {f"d{i}" for i in range(5)}


def test_a_progress_topic_that_has_lost_its_end_is_noticed(
    spark: SparkSession, kafka: Kafka, name: str, tmp_path: Path
) -> None:
    """By the driver whose records lie before what tasks have taken, and by the next one."""
    with world(spark, kafka, name, tmp_path) as one:
        one.stream(BEATS + LAST)
        for batches in (one.batches, one.driver(publish(one.app))):
            standing = batches.standing
            beyond = [replace(m, recorded=m.recorded + 10_000) for m in standing.markers]
            standing.markers[:] = beyond
            if batches is one.batches:
                with pytest.raises(Realign, match="has lost its end"):
                    batches.tick()
                continue
            with closing(batches):
                assert align(batches, one.read, ProgressLog(kafka, name).read, lambda: False)
                assert standing.recorded < 10_000
                assert batches.tick()
                assert one.told()["clock"] == [T0 + 3 * HOUR] * PARTITIONS


def test_each_task_takes_its_initial_state_once(
    spark: SparkSession, kafka: Kafka, name: str, tmp_path: Path
) -> None:
    """A driver was killed when one task had it."""
    given = {f"d{i}": T0 + i for i in range(20)}
    known = spark.createDataFrame(list(given.items()), BEAT)

    def declare(app: Application, source: str) -> None:
        beats = app.stream(source, BEAT).groupBy("device")
        told = beats.transformWithState(
            processors.Known(), "device STRING, silent_at BIGINT", "Append", "EventTime",
            known.groupBy("device"), name="silence",
        )  # fmt: skip
        told.to(f"{source}-silent")

    with world(spark, kafka, name, tmp_path, declare) as one:
        (verb,) = one.declared.processes
        with initial_rows(spark, verb, 0, PARTITIONS, [1]) as rows:
            one.batches.begin_with(rows, [1], "silence")
        with closing(one.driver(publish(one.app))) as other:
            standing = other.standing
            assert [m.initial.keys() for m in standing.markers] == [set(), {"silence"}]
            take_initial_states(one.declared, other, spark)
            assert sum(m.initial["silence"] for m in standing.markers) == len(given)
            numbers = [m.batch_number for m in standing.markers]
            take_initial_states(one.declared, other, spark)
            assert [m.batch_number for m in standing.markers] == numbers, "all have it"
            standing.positions = dict(one.batches.standing.positions)
            assert {m.due["eventtime"] - HOUR for m in standing.markers} <= set(given.values())
            one.batches = other
            one.stream([("d0", T0 + 100, 0)])
            tasks = [one.host.task(name, p) for p in range(PARTITIONS)]
            seen = {k: v for task in tasks for k, v in task.scan("silence-seen")[1]}
            times = {k.decode(): int.from_bytes(v[1:], "big") for k, v in seen.items()}
            assert times == given | {"d0": T0 + 100}
