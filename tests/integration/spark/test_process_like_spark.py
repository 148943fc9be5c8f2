"""Processors as by Spark: by its own tester, and by its operator where time plays no part."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark import cloudpickle
from pyspark.sql import Row, SparkSession
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle
from pyspark.sql.streaming.tws_tester import TwsTester

from state_lib import Application, TopologyTestDriver
from tests.support.processors import HOUR, Silence, silence

T0 = 1_700_000_000_000 // HOUR * HOUR
READING = "id STRING, temperature BIGINT"


class Violations(StatefulProcessor):
    """Of Spark's documentation: counts readings, and keeps how many were too hot."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self.violations = handle.getValueState("numViolations", "value INT")

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Row]:
        del timerValues
        count, new = 0, 0
        for row in rows:
            if row.temperature is not None:
                count += 1
                new += row.temperature > 100
        known: Any = self.violations.get() if self.violations.exists() else (0,)
        (before,) = known
        self.violations.update((before + new,))
        yield Row(id=key[0], count=count, violations=before + new)

    def close(self) -> None:
        pass


class Top(StatefulProcessor):
    """Keeps the hottest readings in a list, and how often each was seen in a map."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self.top = handle.getListState("top", "t BIGINT")
        self.seen = handle.getMapState("seen", "t BIGINT", "n BIGINT")

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Row]:
        del timerValues
        for row in rows:
            if row.temperature is not None:
                self.top.appendValue((row.temperature,))
                old = self.seen.getValue((row.temperature,))
                self.seen.updateValue((row.temperature,), ((old[0] if old else 0) + 1,))
        hottest = sorted((t for (t,) in self.top.get()), reverse=True)[:3]
        self.top.put([(t,) for t in hottest])
        most = sum(n for _, (n,) in self.seen.iterator())
        yield Row(id=key[0], count=most, violations=sum(hottest))

    def close(self) -> None:
        pass


@pytest.fixture(autouse=True, scope="module")
def _shipped() -> Iterator[None]:
    """Spark's workers need not find this module: it is pickled whole."""
    module = sys.modules[__name__]
    cloudpickle.register_pickle_by_value(module)
    yield
    cloudpickle.unregister_pickle_by_value(module)


OUT = "id STRING, count BIGINT, violations BIGINT"
PROCESSORS = [Violations, Top]


def readings(processor: StatefulProcessor) -> Any:
    def build(app: Application) -> None:
        rows = app.stream("readings", READING).groupBy("id")
        rows.transformWithState(processor, OUT, "Update", "None", name="p").to("out")

    return build


def batches() -> list[list[dict[str, Any]]]:
    made = [
        {"id": f"i{n % 3}", "temperature": None if n % 7 == 6 else n * 37 % 150} for n in range(40)
    ]
    return [made[:15], made[15:16], made[16:]]


def ours(spark: SparkSession, processor: StatefulProcessor) -> list[dict[str, Any]]:
    with TopologyTestDriver(readings(processor), spark) as driver:
        for rows in batches():
            driver.createInputTopic("readings").pipeValueList(rows)
            driver.droppedRecords()
        values: list[dict[str, Any]] = driver.createOutputTopic("out").readValuesToList()
        return values


@pytest.mark.parametrize("kind", PROCESSORS)
def test_it_is_as_by_sparks_tester(spark: SparkSession, kind: type[StatefulProcessor]) -> None:
    tester, told = TwsTester(kind()), []
    for rows in batches():
        for key in sorted({row["id"] for row in rows}):
            mine = [Row(**row) for row in rows if row["id"] == key]
            told += [row.asDict() for row in tester.test(key, mine)]
    assert ours(spark, kind()) == told


@pytest.mark.parametrize("kind", PROCESSORS)
def test_it_is_as_by_sparks_operator(
    spark: SparkSession, tmp_path: Path, kind: type[StatefulProcessor]
) -> None:
    """On RocksDB, a batch for each file."""
    source, told = tmp_path / "in", list[dict[str, Any]]()
    source.mkdir()
    for number, rows in enumerate(batches()):
        text = "\n".join(json.dumps(row) for row in rows)
        file = source / f"{number}.json"
        file.write_text(text, encoding="utf-8")
        os.utime(file, (number, number))  # Spark reads files in order of time
    session = spark.newSession()
    session.conf.set(
        "spark.sql.streaming.stateStore.providerClass",
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider",
    )
    session.conf.set("spark.sql.shuffle.partitions", "1")
    files = session.readStream.schema(READING).option("maxFilesPerTrigger", 1).json(str(source))
    made = files.groupBy("id").transformWithState(kind(), OUT, "Update", "None")
    query = (
        made.writeStream.outputMode("update")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .foreachBatch(lambda frame, _: told.extend(row.asDict() for row in frame.collect()))
        .start()
    )
    assert query.awaitTermination(120)
    per_batch = len({row["id"] for row in batches()[0]})
    assert sorted(told[:per_batch], key=str) == ours(spark, kind())[:per_batch]
    assert sorted(map(str, told)) == sorted(map(str, ours(spark, kind())))


@settings(max_examples=8, deadline=None)
@given(st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 90)), min_size=1, max_size=12))
def test_silence_is_as_by_sparks_tester(spark: SparkSession, beats: list[tuple[str, int]]) -> None:
    """In order of time, one beat a batch; the clock of a batch is that of the one before."""
    tester = TwsTester(Silence(), timeMode="EventTime", eventTimeExtractor=lambda row: row.at)
    told, found, at = list[Any](), list[Any](), T0
    with TopologyTestDriver(silence, spark, now=T0 + 1000 * HOUR) as driver:
        topic = driver.createInputTopic("beats")
        for device, minutes in beats:
            at += minutes * 60_000 + 1
            told += tester.test(device, [Row(device=device, at=at)])
            topic.pipeInput({"device": device, "at": at}, timestamp=at)
            driver.advanceStreamTime(at)
            told += tester.setWatermark(at)
            found += driver.createOutputTopic("silent").readValuesToList()
        assert driver.streamTime == at
        assert sorted(map(str, found)) == sorted(str(row.asDict()) for row in told)
        seen = driver.getKeyValueStore("silence-seen")
        for device in "ab":
            kept = tester.peekValueState("seen", device)
            assert seen.get(device) == (None if kept is None else {"at": kept[0]})
