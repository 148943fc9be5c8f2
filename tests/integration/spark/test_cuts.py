"""The same rows in one batch, in two, row by row: what is stored is the same, to the byte."""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812

from state_lib import Application, agg
from state_lib.declaration import Aggregation
from state_lib.executor.merge import merge, rows_of
from state_lib.executor.plan import BatchPlan
from state_lib.protocol.positions import Positions
from state_lib.serdes import serde_from
from state_lib.spark.frames import GROUP, _partials, combine
from tests.support.rows import HOUR, NOW, Row, source

MOST, LEAST = 2**63 - 1, -(2**63)
State = dict[bytes, bytes]


def after(
    spark: SparkSession, app: Application, batches: Sequence[Sequence[Row]]
) -> tuple[State, int]:
    """What is stored per key after these batches, and how many sums wrapped."""
    (verb,) = app.aggregations
    state: State = {}
    wrapped = 0
    for n, rows in enumerate(batches):
        plan = BatchPlan(
            1, n, Positions(), Positions({("t", 0): 99, ("t", 1): 99}), -1, NOW, HOUR, {}
        )
        frame = combine(spark, source(spark, list(rows)), app.aggregations, 1, plan)
        table = frame.toArrow()
        if 0 not in table.column("kind").to_pylist():
            continue
        folded = rows_of(table, 0, verb.kept)
        old = pa.array([state.get(k) for k in folded.keys.to_pylist()], pa.binary())
        merged = merge(folded, old, verb.kept)
        new = [merged.timestamps, merged.values]
        for key, stamp, value in zip(folded.keys.to_pylist(), *(c.to_pylist() for c in new)):  # noqa: B905
            state[key] = struct.pack(">q", stamp) + value
        wrapped += sum(merged.wrapped.values())
    return state, wrapped


def everywhere(spark: SparkSession, app: Application, rows: list[Row]) -> dict[bytes, Any]:
    """The one state that all cuts lead to, decoded."""
    middle = len(rows) // 2
    whole, _ = after(spark, app, [rows])
    assert after(spark, app, [rows[:middle], rows[middle:]])[0] == whole
    assert after(spark, app, [[row] for row in rows])[0] == whole
    return decoded(app.aggregations[0], whole)


def decoded(verb: Aggregation, state: State) -> dict[bytes, Any]:
    serde = serde_from(verb.store.value_serde)
    return {key: serde.deserialize(value[8:]) for key, value in state.items()}


def record(offset: int, k: str, x: Any, partition: int = 0) -> Row:
    return (b"", json.dumps({"k": k, "x": x}).encode(), partition, offset, 5)


def test_sums_wrap_and_are_counted(spark: SparkSession) -> None:
    app = Application("app", spark, partitions=1)
    stream = app.stream("t", "k STRING, x BIGINT")
    stream.groupBy("k").agg("s", total=agg.sum("x"))
    given = [("a", MOST), ("a", MOST), ("b", LEAST), ("b", -1), ("c", MOST), ("c", 1), ("c", -1)]
    rows = [record(i, k, x, i % 2) for i, (k, x) in enumerate(given)]
    found = everywhere(spark, app, rows)
    assert {k: v["total"] for k, v in found.items()} == {b"a": -2, b"b": MOST, b"c": MOST}
    assert after(spark, app, [rows])[1] == 2, "what is back within a batch has not wrapped"


@pytest.mark.parametrize(
    ("values", "least", "most"),
    [
        (["NaN", "1", "-Infinity"], -math.inf, math.nan),
        (["NaN", None], math.nan, math.nan),
        (["-0.0", "0.0", None], 0.0, 0.0),
        (["-0.0"], 0.0, 0.0),
    ],
)
def test_nan_is_greatest_and_there_is_one_zero(
    spark: SparkSession, values: list[str | None], least: float, most: float
) -> None:
    app = Application("app", spark, partitions=1)
    stream = app.stream("t", "k STRING, x STRING")
    x = "cast(x AS DOUBLE)"
    stream.groupBy("k").agg("s", lo=agg.min(x), hi=agg.max(x))
    rows = [record(i, "k", value, i % 2) for i, value in enumerate(values)]
    (found,) = everywhere(spark, app, rows).values()
    assert struct.pack(">dd", found["lo"], found["hi"]) == struct.pack(">dd", least, most)


def test_the_last_of_what_a_record_is_exploded_to_is_the_latest(spark: SparkSession) -> None:
    app = Application("app", spark, partitions=1)
    lines = app.stream("t", format="text").withColumn("pair", F.expr("explode(split(value, ' '))"))
    pairs = lines.withColumn("one", F.expr("explode(split(pair, ','))"))
    pairs.groupBy("left(one, 1)").agg("s", seen=agg.last("one"))
    lines_of = [b"b9,a3,a1 a2,b0", b"a8,a9,a0,b5 a7", b"b1,a1"]
    rows: list[Row] = [(b"", line, i % 2, i, 5 + i // 2) for i, line in enumerate(lines_of)]
    found = {k: v["seen"] for k, v in everywhere(spark, app, rows[:2]).items()}
    assert found == {b"a": "a7", b"b": "b5"}
    found = {k: v["seen"] for k, v in everywhere(spark, app, rows).items()}
    assert found == {b"a": "a1", b"b": "b1"}


def test_a_value_that_does_not_fit_its_field_is_left_out_at_every_cut(spark: SparkSession) -> None:
    app = Application("app", spark, partitions=1)
    stream, x = app.stream("t", "k STRING, x DOUBLE"), "cast(x AS BIGINT)"
    stream.groupBy("k").agg("s", n=agg.count(), total=agg.sum(x), hi=agg.max(x))
    rows = [record(i, "k", x) for i, x in enumerate([1.0, 1e19, 2.5, -1e300, 4.0])]
    (found,) = everywhere(spark, app, rows).values()
    assert found == {"n": 3, "total": 7, "hi": 4}


def test_ties_do_not_depend_on_the_order_in_which_rows_arrive(spark: SparkSession) -> None:
    app = Application("app", spark, partitions=1)
    lines = app.stream("t", format="text").withColumn("one", F.expr("explode(split(value, ' '))"))
    lines.groupBy("left(one, 1)").agg("s", seen=agg.last("one"))
    arrived = [(0, 0, b"a", 0, 0, 5, f"a{position}", 7, position) for position in (1, 0, 2)]
    names = "task int, kind int, key binary, start long, src int, ts long, a0_seen string, o0 long"
    for rows in (arrived, arrived[::-1], sorted(arrived)):
        frame = spark.createDataFrame(rows, f"{names}, p0_0 int").coalesce(1)
        (found,) = frame.groupBy(*GROUP).agg(*_partials(app.aggregations)).collect()
        assert found.l0.a0_seen == "a2"
