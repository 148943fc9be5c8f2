"""Rows on which a step, a key or an input fails become letters, on real Spark."""

from __future__ import annotations

import json
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812

from state_lib import Application, agg
from state_lib.executor.plan import DEAD, DROPPED, BatchPlan
from state_lib.protocol.positions import Positions
from state_lib.spark.frames import combine
from tests.support.rows import HOUR, NOW, Row, combined, source


def letters_of(rows: list[Any]) -> dict[int, str]:
    """Offset → reason; a row's letters must differ."""
    found = [json.loads(bytes(r.key)) for r in rows if r.kind == DEAD]
    reasons: dict[int, str] = {}
    for one in sorted(found, key=lambda x: (x["offset"], x["reason"])):
        before = reasons.get(one["offset"])
        reasons[one["offset"]] = one["reason"] if before is None else f"{before} {one['reason']}"
    return reasons


def test_a_row_on_which_a_step_fails_is_a_letter(spark: SparkSession) -> None:
    app = Application("app", spark, partitions=4)
    stream = app.stream("t", "k STRING, x BIGINT, s STRING")
    stream = stream.withColumn("ratio", F.expr("10 / x")).where("cast(s AS INT) > 0")
    stream = stream.withColumn(
        "part", F.expr("explode(if(k = 'boom', raise_error('boom'), split(k, ' ')))")
    )
    stream.groupBy("part").count("c")
    records = [
        {"k": "a b", "x": 1, "s": "1"}, {"k": "a", "x": 0, "s": "1"}, {"k": "a", "x": 1, "s": "x"},
        {"k": "boom", "x": 1, "s": "1"}, {"k": None, "x": None, "s": None},
        {"k": "boom", "x": 0, "s": "x"}, {"k": "a", "x": 2, "s": "2"},
    ]  # fmt: skip
    rows: list[Row] = [(b"", json.dumps(r).encode(), 0, i, 5) for i, r in enumerate(records)]
    found = combined(spark, app, rows)
    assert letters_of(found) == {
        1: "failed:ratio",
        2: "failed:where (CAST(s AS INT) > 0)",
        3: "failed:part",
        5: "failed:ratio",
    }
    assert {bytes(r.key): r.n for r in found if r.kind == 0} == {b"a": 2, b"b": 1}
    assert {r.ts for r in found} == {5}


def test_a_row_on_which_a_key_or_an_input_fails_is_a_letter(spark: SparkSession) -> None:
    app = Application("app", spark, partitions=4)
    stream = app.stream("t", "k STRING, x DOUBLE, s STRING")
    stream.groupBy("cast(s AS BIGINT)").count("by_number")
    stream.groupBy("k").agg(
        "totals", total=agg.sum("cast(x AS BIGINT)"), least=agg.min("1 / x"), n=agg.count("1 / x")
    )
    records = [
        {"k": "a", "x": 1, "s": "1"}, {"k": "a", "x": 1e300, "s": "1"},
        {"k": "a", "x": 0, "s": "1"}, {"k": "a", "x": 1, "s": "one"},
        {"k": None, "x": 0, "s": None}, {"k": "a", "x": None, "s": "1"},
    ]  # fmt: skip
    rows: list[Row] = [(b"", json.dumps(r).encode(), 0, i, 5) for i, r in enumerate(records)]
    found = combined(spark, app, rows)
    assert letters_of(found) == {
        1: "failed:totals.total",
        2: "failed:totals.least",
        3: "failed:by_number.key",
    }, "and a row without a key is not computed"
    assert [r.n for r in found if r.kind == 0] == [4]
    assert [(r.n, r.a1_total, r.a1_n) for r in found if r.kind == 1] == [(3, 2, 2)]
    assert {bytes(r.key): r.n for r in found if r.kind == DROPPED} == {
        b"null-key:totals": 1,
        b"null-key:by_number": 1,
    }


def test_what_fails_in_a_later_branch_of_a_topic_is_a_letter_too(spark: SparkSession) -> None:
    app = Application("app", spark, partitions=4)
    stream = app.stream("t", "k STRING NOT NULL, x BIGINT")
    stream.groupBy("k").count("plain")
    stream.withColumn("y", F.expr("10 / x")).groupBy("k").count("ratios")
    rows: list[Row] = [
        (b"", b'{"k": "a", "x": 0}', 0, 0, 5),
        (b"", b'{"k": "a", "x": 1}', 0, 1, 5),
        (b"", b"{}", 0, 2, 5),
    ]
    found = combined(spark, app, rows)
    assert letters_of(found) == {0: "failed:y", 2: "wrong-schema"}
    assert {r.kind: r.n for r in found if r.kind >= 0} == {0: 2, 1: 1}


def test_one_letter_for_a_record_whatever_it_explodes_to(spark: SparkSession) -> None:
    app = Application("app", spark, partitions=4)
    words = app.stream("t", format="text").withColumn("word", F.expr("explode(split(value, ' '))"))
    words.groupBy("word").agg("s", total=agg.sum("cast(word AS BIGINT)"))
    found = combined(spark, app, [(b"", b"1 x 2 y z 3", 1, 0, 5)])
    dead = [r for r in found if r.kind == DEAD]
    assert [(r.task, r.n) for r in dead] == [(1, 3)], "of its source partition's task"
    assert {bytes(r.key): r.a0_total for r in found if r.kind == 0} == {b"1": 1, b"2": 2, b"3": 3}


def test_text_that_is_not_utf8_is_a_letter(spark: SparkSession) -> None:
    """As a key or a kept text, whoever reads the store could not decode it."""
    app = Application("app", spark, partitions=4)
    stream = app.stream("t")
    stream.groupBy("cast(key AS STRING)").agg("s", seen=agg.last("cast(value AS STRING)"))
    stream.groupBy("key").count("raw")
    found = combined(
        spark, app, [(b"\xff", b"x", 0, 0, 5), (b"k", b"caf\xe9", 0, 1, 5), (b"k", b"x", 0, 2, 5)]
    )
    assert letters_of(found) == {0: "not-utf8:s.key", 1: "not-utf8:s.seen"}
    assert [(bytes(r.key), r.l0.a0_seen) for r in found if r.kind == 0] == [(b"k", "x")]
    assert {bytes(r.key): r.n for r in found if r.kind == 1} == {b"\xff": 1, b"k": 2}


def test_a_row_too_large_for_its_topics_is_a_letter(spark: SparkSession) -> None:
    app = Application("app", spark, partitions=4)
    stream = app.stream("t", "k STRING, x STRING")
    stream.groupBy("k").count("counts").toStream().to("out")
    stream.groupBy("k").agg("seen", x=agg.last("x"))
    values = [
        {"k": "a", "x": "b"}, {"k": "k" * 2000, "x": "x"}, {"k": "a", "x": "x" * 6000},
        {"k": "\u0001" * 800, "x": "x"}, {"k": "k" * 1200, "x": "x"},
    ]  # fmt: skip
    rows: list[Row] = [(b"", json.dumps(v).encode(), 0, i, 5) for i, v in enumerate(values)]
    plan = BatchPlan(
        1,
        1,
        Positions(),
        Positions({("t", 0): 99}),
        -1,
        NOW,
        HOUR,
        {},
        limits={"counts": 3000, "seen": 5000},
    )
    found = combine(spark, source(spark, rows), app.aggregations, 4, plan).collect()
    assert letters_of(found) == {
        1: "too-large:counts",
        2: "too-large:seen",
        3: "too-large:counts",
    }
    assert sum(r.n for r in found if r.kind == 0) == 3
    assert sum(r.n for r in found if r.kind == 1) == 4
    dead = [json.loads(bytes(r.key)) for r in found if r.kind == DEAD]
    large = {one["offset"]: (one["size"], one["limit"]) for one in dead}
    assert large[2][0] in range(6001, 6600)
    assert large[2][1] == 5000
    assert large[3][0] > 800 * 7
