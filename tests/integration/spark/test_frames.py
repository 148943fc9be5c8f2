"""From source records to combined entries, on real Spark."""

from __future__ import annotations

import importlib
import json
from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa
import pytest
from pyspark import TaskContext
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812

from state_lib import Application, TimeWindows, agg
from state_lib.errors import ConfigurationError, Misplaced
from state_lib.executor.exchange import check_placed
from state_lib.executor.plan import DEAD, DROPPED, SEEN, BatchPlan
from state_lib.keys import partition_for
from state_lib.protocol.positions import Positions
from state_lib.spark.frames import combine
from state_lib.spark.partitioner import partition_for_key
from state_lib.spark.properties import REQUIRED
from tests.support.rows import HOUR, NOW, Row, combined, source


@pytest.fixture
def flights(spark: SparkSession) -> Application:
    app = Application("app", spark, partitions=4)
    stream = app.stream("t", "k STRING, x BIGINT NOT NULL")
    stream.groupBy("k").agg("totals", n=agg.count(), total=agg.sum("x"), seen=agg.last("x"))
    stream.groupBy("k").windowedBy(TimeWindows("1 hour", grace="1 hour")).count("hourly")
    return app


def value(k: Any, x: Any) -> bytes:
    return json.dumps({"k": k, "x": x}).encode()


def test_tasks_are_kafkas_partitions(spark: SparkSession) -> None:
    keys = [b"", b"\x00", "schlüssel".encode(), *(f"key-{i}".encode() for i in range(10_000))]
    frame = spark.createDataFrame([(k,) for k in keys], "key binary")
    rows = frame.select("key", partition_for_key(spark, F.col("key"), 7).alias("p")).collect()
    assert {bytes(r.key): r.p for r in rows} == {k: partition_for(k, 7) for k in keys}


def test_partition_p_is_task_p_and_empty_ones_exist(
    spark: SparkSession, flights: Application
) -> None:
    plan = BatchPlan(1, 1, Positions(), Positions({("t", 0): 99}), -1, NOW, HOUR, {})
    frame = combine(
        spark, source(spark, [(b"", value("a", 1), 0, 0, 5)]), flights.aggregations, 4, plan
    )
    assert frame.rdd.getNumPartitions() == 4
    assert all(
        r.at == r.task
        for r in combined(spark, flights, [(b"", value(f"k{i}", 1), 0, i, 5) for i in range(50)])
    )


def test_rows_in_another_partition_than_their_task_s_are_refused(
    spark: SparkSession, flights: Application
) -> None:
    """A setting of Spark's may exchange them once more, by all grouping columns."""
    rows: list[Row] = [(b"", value(f"k{i}", 1), 0, i, 5) for i in range(50)]
    frame = source(spark, rows)
    plan = BatchPlan(1, 1, Positions(), Positions({("t", 0): 99}), -1, NOW, HOUR, {})

    def placed(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        task = TaskContext.get().partitionId()  # type: ignore[union-attr]
        found = list(batches)
        why = ""
        try:
            check_placed(task, pa.Table.from_batches(found) if found else None)
        except Misplaced as error:
            why = error.message
        yield pa.record_batch([[why]], names=["why"])

    def said() -> set[str]:
        made = combine(spark, frame, flights.aggregations, 4, plan)
        return {r.why for r in made.mapInArrow(placed, "why string").collect()}

    setting = "spark.sql.requireAllClusterKeysForDistribution"
    before = REQUIRED[setting]
    assert said() == {""}
    spark.conf.set(setting, "true")
    try:
        assert any(setting in why for why in said())
    finally:
        spark.conf.set(setting, before)


def test_one_shuffle_only(spark: SparkSession, flights: Application) -> None:
    plan = BatchPlan(1, 1, Positions(), Positions({("t", 0): 99}), -1, NOW, HOUR, {})
    frame = combine(spark, source(spark, []), flights.aggregations, 4, plan)
    text = frame._jdf.queryExecution().executedPlan().toString()
    assert text.count("Exchange") == 1


def test_entries_of_every_verb(spark: SparkSession, flights: Application) -> None:
    rows = combined(
        spark,
        flights,
        [
            (None, value("a", 5), 0, 0, HOUR + 1),
            (b"z", value("a", 7), 0, 1, HOUR + 2),
            (b"", value("a", 1), 1, 0, 3 * HOUR),
        ],
    )
    totals = {r.src: r for r in rows if r.kind == 0}
    assert (totals[0].n, totals[0].a0_total, totals[0].l0.a0_seen) == (2, 12, 7)
    assert (totals[1].n, totals[1].ts) == (1, 3 * HOUR)
    assert {(r.start, r.n) for r in rows if r.kind == 1} == {(HOUR, 2), (3 * HOUR, 1)}


def test_broken_records_are_letters_once_and_never_move_the_clock(
    spark: SparkSession, flights: Application
) -> None:
    bad: list[tuple[Row, str]] = [
        ((b"k", b"not json", 0, 0, 5), "undecodable"),
        ((b"k", None, 0, 1, 5), "undecodable"),
        ((b"k", b"\xff\xfe", 0, 2, 5), "undecodable"),
        ((b"k", b"[1, 2]", 0, 3, 5), "wrong-schema"),
        ((b"k", value("a", "text"), 0, 4, 5), "wrong-schema"),
        ((b"k", value("a", None), 0, 5, 5), "wrong-schema"),
        ((b"k", value("a", 1), 0, 6, 4_102_444_800_000), "future"),
        ((b"k", value("a", 1), 0, 7, -1), "invalid-timestamp"),
    ]
    rows = combined(spark, flights, [r for r, _ in bad])
    letters = {
        json.loads(bytes(r.key))["offset"]: json.loads(bytes(r.key)) for r in rows if r.kind == DEAD
    }
    assert {o: x["reason"] for o, x in letters.items()} == {r[3]: why for r, why in bad}
    assert {r.kind for r in rows} == {DEAD, SEEN}
    assert {r.ts for r in rows} == {None}
    assert letters[6]["timestamp"] == 4_102_444_800_000


def test_null_keys_and_late_rows_are_counted(spark: SparkSession, flights: Application) -> None:
    rows = combined(
        spark,
        flights,
        [
            (b"k", value(None, 1), 1, 0, 5),
            (b"k", value("a", 1), 1, 1, 5),
            (b"k", value("a", 1), 1, 2, HOUR),
        ],
        clock=2 * HOUR,
    )
    dropped = {bytes(r.key).decode(): (r.n, r.task) for r in rows if r.kind == DROPPED}
    assert dropped == {
        "null-key:totals": (1, 1),
        "null-key:hourly": (1, 1),
        "late:hourly": (1, partition_for(b"a", 4)),
    }
    assert sum(r.n for r in rows if r.kind == 0) == 2, "late for a window is not late for a table"


def test_event_times_of_1970_are_kept_when_not_late(
    spark: SparkSession, flights: Application
) -> None:
    rows = combined(
        spark, flights, [(b"k", value("a", 1), 0, 0, 0), (b"k", value("a", 1), 0, 1, 1)]
    )
    assert [(r.start, r.n) for r in rows if r.kind == 1] == [(0, 2)]


def test_steps_keep_filtered_rows_as_seen(spark: SparkSession) -> None:
    app = Application("words", spark, partitions=4)
    lines = app.stream("t", format="text").withColumn(
        "word", F.expr("explode(split(lower(value), '[^a-z]+'))")
    )
    lines.where("word <> ''").withColumn("initial", F.expr("left(word, 1)")).groupBy(
        "initial"
    ).count("c")
    rows = combined(
        spark,
        app,
        [(b"", b"Alpha apple 123 beta", 0, 0, 5), (b"", b"", 0, 1, 9), (b"", None, 1, 0, 7)],
    )
    assert {bytes(r.key): r.n for r in rows if r.kind == 0} == {b"a": 2, b"b": 1}
    assert {(r.src, r.ts) for r in rows if r.kind == SEEN} == {(0, 9)}


def test_undecodable_text_is_a_letter(spark: SparkSession) -> None:
    app = Application("words", spark, partitions=4)
    app.stream("t", format="text").withColumn("word", F.expr("explode(split(value, ' '))")).groupBy(
        "word"
    ).count("c")
    rows = combined(spark, app, [(b"k", b"caf\xe9 cr\xe8me", 0, 0, 5), (b"k", b"plain", 0, 1, 5)])
    assert [json.loads(bytes(r.key))["reason"] for r in rows if r.kind == DEAD] == ["undecodable"]
    assert {bytes(r.key) for r in rows if r.kind == 0} == {b"plain"}


def test_align_reads_for_its_tasks_only(spark: SparkSession, flights: Application) -> None:
    records: list[Row] = [(b"", value(f"k{i}", 1), i % 2, i, 5) for i in range(40)]
    everything = combined(spark, flights, records)
    some = combined(spark, flights, records, tasks=(1, 3), repeated=True)
    assert {r.task for r in some} == {1, 3}
    assert sum(r.n for r in some) == sum(r.n for r in everything if r.task in (1, 3))


def test_rows_of_tasks_that_are_parked_leave_their_event_times(
    spark: SparkSession, flights: Application
) -> None:
    """The clock does not depend on which hosts are away, and nothing else is kept of them."""
    present = (0, 2)
    records: list[Row] = [(b"", value(f"k{i}", 1), i % 2, i, 5 + i) for i in range(40)]
    records += [(b"", b"{}", i % 2, i, 99) for i in range(40, 44)]

    def latest(rows: list[Any]) -> dict[int, int]:
        return {src: max(r.ts or -1 for r in rows if r.src == src) for src in (0, 1)}

    def told(rows: list[Any]) -> list[str]:
        return sorted(repr(r) for r in rows if r.kind != SEEN)

    everything = combined(spark, flights, records)
    some = combined(spark, flights, records, tasks=present, parked=(1, 3))
    ours = [r for r in everything if r.task in present]
    assert latest(ours) != latest(everything)
    assert latest(some) == latest(everything) == {0: 43, 1: 44}
    assert {r.task for r in some} == {r.at for r in some} == set(present)
    assert told(some) == told(ours)
    assert sum(r.n for r in some) == sum(r.n for r in everything)


def test_int64_keys_are_kafkas_bytes(spark: SparkSession) -> None:
    app = Application("ints", spark, partitions=4)
    app.stream("t", "k BIGINT").groupBy("k").count("c")
    rows = combined(spark, app, [(b"", b'{"k": -5}', 0, 0, 5), (b"", b'{"k": 258}', 0, 1, 5)])
    assert {bytes(r.key) for r in rows} == {
        (-5).to_bytes(8, "big", signed=True),
        (258).to_bytes(8, "big"),
    }


NAMES = [
    "timestamp", "key", "value", "topic", "partition", "offset", "timestampType", "_ts", "_bad",
    "_src", "_offset", "ts", "src", "task", "kind", "start", "n",
]  # fmt: skip


@pytest.mark.parametrize("upper", [False, True], ids=["", "upper"])
def test_a_field_may_have_any_name(spark: SparkSession, *, upper: bool) -> None:
    """Also those of the record's own columns, and of those that are added on the way."""
    names = [n.upper() if upper else n for n in NAMES]
    for name in names:
        app = Application("app", spark, partitions=4)
        stream = app.stream("t", f"{name} BIGINT NOT NULL, other STRING")
        stream.withColumn("part", F.expr("explode(split(other, ' '))")).groupBy("part").agg(
            "sums", total=agg.sum(name), seen=agg.last(name)
        )
        good = json.dumps({name: 7, "other": "a b"}).encode()
        rows = combined(spark, app, [(b"", good, 0, 0, 5), (b"", b"{}", 0, 1, 6)])
        sums = [r for r in rows if r.kind == 0]
        assert sorted((bytes(r.key), r.a0_total, r.l0.a0_seen, r.ts) for r in sums) == [
            (b"a", 7, 7, 5), (b"b", 7, 7, 5),
        ], name  # fmt: skip
        (dead,) = (json.loads(bytes(r.key)) for r in rows if r.kind == DEAD)
        assert (dead["reason"], dead["offset"], dead["timestamp"]) == ("wrong-schema", 1, 6)


def test_fields_that_differ_in_case_only_are_refused(spark: SparkSession) -> None:
    app = Application("app", spark, partitions=4)
    with pytest.raises(ConfigurationError, match="differ in case only"):
        app.stream("t", "x BIGINT, X BIGINT")


@pytest.mark.parametrize("job", ["flights", "word_count"])
def test_the_code_that_spark_makes_for_two_batches_is_the_same(
    spark: SparkSession, job: str
) -> None:
    """Else each batch would compile new classes, and warm them up."""
    app: Application = importlib.import_module(f"jobs.{job}").app
    (topic,) = app.topology.sources
    frame = source(spark, []).withColumn("topic", F.lit(topic))

    def code(number: int) -> list[str]:
        to = Positions({(topic, 0): 99 * number, (topic, 1): 7})
        plan = BatchPlan(1, number, to, to, NOW + number, NOW + HOUR * number, HOUR, {})
        made = combine(spark, frame, app.aggregations, app.partitions, plan)
        stages = made._jdf.queryExecution().debug().codegenToSeq()
        return [stages.apply(i)._2() for i in range(stages.size())]

    first = code(1)
    assert any("GeneratedIterator" in text for text in first)
    assert code(2) == first
