"""Processors over Kafka, hosts and Spark: as in the test driver, and a tick is for every task."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pytest
from pyspark import cloudpickle
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from state_lib import Application
from state_lib.changelog.progress import ProgressLog
from state_lib.changelog.topics import progress_topic
from state_lib.cli import app as command
from state_lib.client.query import QueryClient
from state_lib.errors import ConfigurationError, Realign
from state_lib.host.http import HttpServer
from state_lib.kafka import Kafka
from state_lib.spark import batches as of_batches
from state_lib.spark.align import align
from state_lib.spark.driver import Driver
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


def test_a_state_of_another_schema_is_refused_at_the_next_start(
    spark: SparkSession, kafka: Kafka, name: str, tmp_path: Path
) -> None:
    """By a real driver, also where bytes have the same form; what there is stays, and goes on."""

    class Rewritten(processors.Silence):
        def init(self, handle: Any) -> None:
            self.handle, self.seen = handle, handle.getValueState("seen", "at TIMESTAMP")

    with world(spark, kafka, name, tmp_path) as one:
        one.stream(BEATS + LAST)
        kept = one.told()
        changed = Application(name, spark, partitions=PARTITIONS)
        beats = changed.stream(one.source, BEAT).groupBy("device")
        told = beats.transformWithState(
            Rewritten(), "device STRING, silent_at BIGINT", "Append", "EventTime", name="silence"
        )
        told.to(f"{one.source}-silent")
        with pytest.raises(ConfigurationError) as refused:
            Driver(changed, one.settings).run()
        (difference,) = refused.value.details["differences"]
        for seen in ("'silence-seen'", "struct<at:bigint>", "struct<at:timestamp>"):
            assert seen in difference
        for words in (name, difference, "another application id", f"holdfast app delete {name}"):
            assert words in refused.value.message
        assert one.told() == kept
        assert one.batches.tick(), "nobody was superseded"
        assert one.told() != kept


def test_states_are_queried_as_every_store(
    spark: SparkSession,
    kafka: Kafka,
    name: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As docs/how-to/processors.md says: a value by its key, lists and maps by a prefix."""
    asked = {
        "seen": lambda handle, name: handle.getValueState(name, "at BIGINT"),
        "recent": lambda handle, name: handle.getValueState(name, "at BIGINT", HOUR),
        "past": lambda handle, name: handle.getListState(name, "at BIGINT"),
        "by": lambda handle, name: handle.getMapState(name, "at BIGINT", "n BIGINT", HOUR),
    }

    def on_rows(self: Any, _: Any, rows: Any, __: Any) -> Any:
        for row in rows:
            self.seen.update((row.at,))
            self.recent.update((row.at,))
            self.past.appendValue((row.at,))
            self.by.updateValue((row.at,), (1,))
        return iter(())

    def declare(app: Application, source: str) -> None:
        told = app.stream(source, BEAT).groupBy("device").transformWithState(
            processors.Doing(asked, on_rows), BEAT, "Append", "ProcessingTime", name="p"
        )  # fmt: skip
        told.to(f"{source}-told")

    with world(spark, kafka, name, tmp_path, declare) as one:
        one.stream([("a", T0, 0), ("b", T0 + 1, 1), ("aa", T0 + 2, 0), ("a", T0 + 3, 1)])
        (at,) = one.settings.host_addresses

        def read(store: str) -> list[tuple[Any, ...]]:
            given = {"app": name, "store": store, "hosts": str(at)}
            frame = spark.read.format("holdfast").options(**given).load().drop("_metadata")
            return sorted(tuple(row) for row in frame.collect())

        of_a = b"\0\0\0\1a"
        numbers = [number.to_bytes(8, "big") for number in (0, 1)]
        times = [b"\0" + when.to_bytes(8, "big") for when in (T0, T0 + 3)]
        last = [("a", T0 + 3), ("aa", T0 + 2), ("b", T0 + 1)]
        assert read("p-seen") == read("p-recent") == last, "its expiry is not shown"
        past, by = read("p-past"), read("p-by")
        assert (len(past), len(by)) == (4, 4)
        assert past[:2] == [(of_a + n, t) for n, t in zip(numbers, (T0, T0 + 3), strict=True)]
        assert by[:2] == [(of_a + t, 1) for t in times]

        server = HttpServer(one.host, at, None)
        server.start()
        try:
            with QueryClient((at,)) as client:
                for store in ("p-seen", "p-recent"):
                    found = client.get(name, store, "a")
                    assert found is not None
                    assert (found["key"], found["value"]) == ("a", {"at": T0 + 3})
                    rows = client.range(name, store)
                    assert [(row["key"], row["value"]["at"]) for row in rows] == last
                rows = client.range(name, "p-past", prefix=of_a)
                assert [(row["key"], row["value"]) for row in rows] == [
                    ((of_a + n).hex(), {"at": t})
                    for n, t in zip(numbers, (T0, T0 + 3), strict=True)
                ]
                rows = client.range(name, "p-by", prefix=of_a)
                of_times = [((of_a + t).hex(), {"n": 1}) for t in times]
                assert [(row["key"], row["value"]) for row in rows] == of_times
            monkeypatch.setenv("HOLDFAST_HOSTS", str(at))
            asked_for = ["query", name, "p-by", "--prefix", "0000000161", "--json"]
            done = CliRunner().invoke(command, asked_for)
            assert done.exit_code == 0, done.output
            lines = [orjson.loads(line) for line in done.stdout.splitlines()]
            assert [(line["key"], line["value"]) for line in lines] == of_times
        finally:
            server.stop()
