"""No record that passes is larger than it was judged: in the changelog, and in the output."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812

from state_lib import Application, Materialized, TopologyTestDriver, agg
from state_lib.declaration import ORDER_FIELDS, Field, Kept
from state_lib.executor.merge import Merged, Rows
from state_lib.executor.outputs import output_keys, output_values
from state_lib.serdes import serde_from
from state_lib.serdes.kinds import Kind, kind_from
from state_lib.spark.given import beside
from state_lib.spark.sizes import too_large
from state_lib.specs import DAY_MS, StoreSpec
from tests.support.drawn import FLAT, kinds, values

T0 = 1_700_000_000_000
WINDOW = bytes(12)
"""What comes to a key."""
COLUMNS = {"text é": "utf8", "data": "bytes", "n": "int64", "t": "timestamp"}
KEY: Kind = {"struct": [[*pair] for pair in COLUMNS.items()]}


@pytest.fixture(scope="module")
def ours(spark: SparkSession) -> SparkSession:
    """With the settings under which records are judged."""
    return beside(spark)


def kept_of(of: dict[str, Kind], key_name: str, outputs: tuple[str, ...]) -> Kept:
    layout = [*map(list, ORDER_FIELDS), *map(list, of.items())]
    spec = StoreSpec(
        "s", "window", key_serde=KEY, value_serde={"struct": layout}, window_size_ms=1000,
        retention_ms=DAY_MS,
    )  # fmt: skip
    return Kept(
        spec, KEY, {name: Field("last", kind) for name, kind in of.items()}, key_name, outputs
    )


def written_of(verb: Kept, rows: list[dict[str, Any]]) -> tuple[list[int], list[int]]:
    """Bytes of each row's records: in the changelog, and in the output."""
    key, value = serde_from(KEY), serde_from(verb.store.value_serde)
    order = {name: 2**63 - 1 for name, _ in ORDER_FIELDS}
    inner = [key.serialize(row["key"]) for row in rows]
    stored = [value.serialize({**order, **{n: row[n] for n in verb.fields}}) for row in rows]
    times = pa.array([T0] * len(rows), pa.int64())
    keys, inners = (pa.array(some, pa.binary()) for some in ([k + WINDOW for k in inner], inner))
    fields = {
        name: pa.array([row[name] for row in rows], kind_from(field.type).arrow_type)
        for name, field in verb.fields.items()
    }
    made = Rows(keys, inners, times, times, {}, None, {}, {})
    merged = Merged(pa.array(stored, pa.binary()), times, fields, {})
    shown = output_values(verb, made, merged).to_pylist()
    out = zip(output_keys(verb, made).to_pylist(), shown, strict=True)
    changelog = [len(k + WINDOW) + len(v) for k, v in zip(inner, stored, strict=True)]
    return changelog, [len(k) + len(v) for k, v in out]


@settings(max_examples=10, deadline=None)
@given(data=st.data())
def test_what_is_judged_is_a_bound_of_both_records(ours: SparkSession, data: st.DataObject) -> None:
    of = {f"f{i}": data.draw(kinds(FLAT)) for i in range(3)}
    key = st.fixed_dictionaries({name: FLAT[kind] for name, kind in COLUMNS.items()})
    row = st.fixed_dictionaries({"key": key, **{name: values(kind) for name, kind in of.items()}})
    rows = data.draw(st.lists(row, min_size=1, max_size=12))
    keys = pa.array([serde_from(KEY).serialize(row["key"]) for row in rows], pa.binary())
    columns: dict[str, Any] = {"key": keys}
    for i, (name, kind) in enumerate(of.items()):
        columns[f"__hf_in0_{i}"] = pa.array([row[name] for row in rows], kind_from(kind).arrow_type)
    frame = ours.createDataFrame(pa.table(columns))
    alone, named, apart = (
        kept_of(of, name, outputs) for name, outputs in (("k", ()), ("k", ("out",)), ("", ("out",)))
    )
    judged = (too_large(verb, F.col("key"), 0, -1) for verb in (alone, named, apart))
    found = list(zip(*frame.select(*judged).collect(), strict=True))
    for verb, sizes in zip((alone, named, apart), found, strict=True):
        changelog, output = written_of(verb, rows)
        for size, stored, shown in zip(sizes, changelog, output, strict=True):
            assert size >= stored
            assert size >= shown or not verb.outputs


def test_a_list_of_numbers_that_the_changelog_does_not_take(spark: SparkSession) -> None:
    """As JSON they are short: 200 KB come, 1.3 MB would be stored."""

    def build(app: Application) -> None:
        rows = app.stream("in", "k STRING, xs ARRAY<BIGINT>")
        kept = Materialized("kept", backend="memory")
        rows.groupBy("k").agg(kept, xs=agg.last("xs")).toStream().to("out")

    with TopologyTestDriver(build, spark) as driver:
        topic = driver.createInputTopic("in")
        topic.pipeInput({"k": "a", "xs": [1] * 100_000}, timestamp=T0)
        topic.pipeInput({"k": "a", "xs": [1] * 30_000}, timestamp=T0 + 1)
        assert [(one.offset, one.reason) for one in driver.deadLetters()] == [(0, "too-large:kept")]
        assert len(driver.getKeyValueStore("kept").get("a")["xs"]) == 30_000
        assert driver.createOutputTopic("out").getQueueSize() == 1


def test_structs_of_nulls_that_the_output_does_not_take(spark: SparkSession) -> None:
    """Spark's JSON has no nulls: 135 KB come, 0.8 MB would be stored, 1.3 MB be put out."""

    def build(app: Application) -> None:
        rows = app.stream("in", "k STRING, xs ARRAY<STRUCT<tailnum: STRING, day: DATE>>")
        rows.groupBy("k").agg("put_out", xs=agg.last("xs")).toStream().to("out")
        rows.groupBy("k").agg("alone", xs=agg.last("xs"))

    with TopologyTestDriver(build, spark) as driver:
        topic = driver.createInputTopic("in")
        topic.pipeInput({"k": "a", "xs": [{}] * 45_000}, timestamp=T0)
        topic.pipeInput({"k": "b", "xs": [{}] * 20_000}, timestamp=T0)
        letters = [(one.offset, one.reason) for one in driver.deadLetters()]
        assert letters == [(0, "too-large:put_out")]
        sizes = {k: len(v["xs"]) for k, v in driver.getKeyValueStore("alone").all().items()}
        assert sizes == {"a": 45_000, "b": 20_000}
        assert driver.createOutputTopic("out").getQueueSize() == 1


def test_a_key_that_the_output_does_not_take_as_well(spark: SparkSession) -> None:
    """It is there twice, the second time as JSON."""

    def build(app: Application) -> None:
        rows = app.stream("in", "k STRING, t STRING")
        rows.groupBy("k", F.length("t").alias("n")).count("put_out").toStream().to("out")

    with TopologyTestDriver(build, spark) as driver:
        topic = driver.createInputTopic("in")
        topic.pipeInput({"k": "\n" * 400_000, "t": ""}, timestamp=T0)
        topic.pipeInput({"k": "x" * 400_000, "t": ""}, timestamp=T0)
        assert [(one.offset, one.reason) for one in driver.deadLetters()] == [
            (0, "too-large:put_out")
        ]
        ((key, value),) = driver.createOutputTopic("out").readKeyValuesToList()
        assert (len(key.k), value["count"]) == (400_000, 1)
