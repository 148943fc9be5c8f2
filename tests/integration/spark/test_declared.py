"""What a job declares is judged before anything is claimed for it."""

from __future__ import annotations

import pickle
import re
from collections.abc import Callable
from dataclasses import replace

import pytest
from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from state_lib import Application, KStream, Materialized, TimeWindows, agg
from state_lib.declaration import Expression
from state_lib.errors import ConfigurationError, InvalidName
from state_lib.executor.plan import BatchPlan
from state_lib.kafka import TopicFacts
from state_lib.spark.frames import combine
from state_lib.spark.opened import Opened
from state_lib.spark.prepared import first_plan, prepared
from tests.support.declared import counting
from tests.support.rows import NOW, Row, source
from tests.support.spark_processors import COUNTED, Violations


def plan_of(app: Application) -> BatchPlan:
    return first_plan(app, {t: TopicFacts(t, "id", 2, 1) for t in app.topology.sources}, {})


REFUSED = {
    "cannot be computed": ["nope", "upper(k", "k + nope", "explode(array(1)) + 1"],
    "gives another value each time": ["uuid()", "cast(rand() AS STRING)", "input_file_name()"],
    "reads (Current|Now|LocalTimestamp)": [
        "cast(now() AS STRING)", "current_date", "localtimestamp()", "unix_timestamp()",
        "current_timestamp()", "current_user()", "current_timezone()", "current_database()",
        "current_catalog()",
    ],
    "by a subquery": ["(SELECT 1)", "x IN (SELECT 1)", "EXISTS (SELECT 1)"],
    "looks at several rows": ["sum(x)", "max(x) OVER ()"],
}  # fmt: skip


@pytest.mark.parametrize(
    ("why", "expr"), [(why, expr) for why, exprs in REFUSED.items() for expr in exprs]
)
def test_an_expression_that_reads_more_than_its_row_is_refused(
    spark: SparkSession, why: str, expr: str
) -> None:
    """A repeated batch would move rows to other keys, tasks and windows."""
    app = Application("app", spark, partitions=4)
    rows = app.stream("t", "k STRING, x BIGINT")
    for verb, declare in (
        ("withColumn", lambda: rows.withColumn("id", F.expr(expr))),
        ("select", lambda: rows.select(F.expr(expr).alias("id"))),
        ("where", lambda: rows.where(f"({expr}) IS NULL")),
        ("groupBy", lambda: rows.groupBy(expr)),
        ("agg of s.n", lambda: rows.groupBy("k").agg("s", n=agg.count(expr))),
    ):
        with pytest.raises(ConfigurationError, match=rf"stream 't', step 1, {verb} ") as refused:
            declare()
        if verb != "where":  # there Spark itself refuses aggregates, in words of its own
            assert re.search(why, refused.value.message, re.DOTALL), refused.value.message
    assert not app.aggregations


@pytest.mark.parametrize(
    ("declare", "instead"),
    [
        (lambda rows: rows.groupBy(), "name one"),
        (lambda rows: rows.groupBy("k", F.upper("k")), r"upper\(k\) has no name.*alias\('name'\)"),
        (lambda rows: rows.groupBy("k", F.struct("x").alias("s")), r"'s' is struct<x:bigint>\)"),
        (lambda rows: rows.groupBy("k", F.lit(0.5).alias("half")), r"F\.col\('half'\)\.cast"),
        (
            lambda rows: rows.withColumn("a-b", F.col("k")).groupBy("k", "a-b"),
            "has a name that is no",
        ),
        (
            lambda rows: rows.groupBy(F.struct("k", F.struct("x").alias("s"))),
            r"F\.col\('s'\)\.cast",
        ),
        (lambda rows: rows.groupBy("k", F.col("x").alias("K")), r"called \['K', 'k'\]: rename"),
        (lambda rows: rows.groupBy("cast(x AS DOUBLE)"), r"cast\('string'\)"),
        (lambda rows: rows.groupBy("cast(x AS DECIMAL(19))"), r"cast\('string'\)"),
        (lambda rows: rows.groupBy(F.array("k")), r"cannot be kept \(array<string>\)"),
        (lambda rows: rows.groupBy("k").agg("s", a=agg.last("INTERVAL 1 DAY")), "to_json"),
        (lambda rows: rows.groupBy("k").agg("s", a=agg.sum("cast(x AS DECIMAL(29))")), "28 digits"),
        (lambda rows: rows.groupBy("k").agg("s", a=agg.sum("k")), "double"),
        (lambda rows: rows.groupBy("k").agg("s", a=agg.max(F.array("k"))), "of one value"),
        (lambda rows: rows.groupBy("k").agg("s", a=agg.min("struct(x / 2)")), "no fractions"),
        (
            lambda rows: rows.groupBy("k").agg("s", a=agg.last(F.struct("k", "k"))),
            r"called \['k'\]",
        ),
        (lambda rows: rows.groupBy("k").agg("s", a=agg.last("array(struct(x, k AS X))")), "rename"),
        (lambda rows: rows.groupBy("k").agg("s", a=agg.last("map(x / 2, k)")), "cast its keys"),
        (lambda rows: rows.groupBy("k", "x").agg("s", k=agg.count()), r"fields \['k'\].*Rename"),
        (
            lambda rows: (
                rows.groupBy(F.upper("k").alias("window_start"))
                .windowedBy(TimeWindows("1 hour"))
                .count("s")
            ),
            r"key with \['window_start'\].*another name",
        ),
        (lambda rows: rows.groupBy("k").agg("s", a=agg.count_if("k")), "no condition"),
        (lambda rows: rows.groupBy("k").agg("s", a=F.sum("x")), r"agg\.sum"),
        (lambda rows: rows.groupBy("k").count(Materialized("s", retention="1 day")), "windowedBy"),
        (lambda rows: rows.withColumn("y", "x"), r"F\.col"),
        (lambda rows: rows.select(F.posexplode(F.split("k", ""))), "explode"),
        (lambda rows: rows.select(F.explode(F.create_map("k", "x"))), "map_entries"),
        (lambda rows: rows.select("k", F.col("x").alias("K")), "rename"),
        (lambda rows: rows.select(*2 * [F.explode(F.split("k", ""))]), "in the next"),
        (lambda rows: rows.drop("nope"), "no column"),
        (lambda rows: rows.withColumnRenamed("nope", "y"), "no column"),
        (lambda rows: rows["nope"], "nope"),
    ],
)
def test_what_is_refused_says_what_to_write(
    spark: SparkSession, declare: Callable[[KStream], object], instead: str
) -> None:
    rows = Application("app", spark).stream("t", "k STRING, x BIGINT")
    with pytest.raises(ConfigurationError, match=instead):
        declare(rows)


def test_rows_have_the_columns_that_a_dataframe_would_have(spark: SparkSession) -> None:
    rows = Application("app", spark).stream("t", "k STRING, x BIGINT, s STRUCT<a: INT>")
    base = ["key", "value", "topic", "partition", "offset", "timestamp"]
    assert rows.columns == [*base, "k", "x", "s"]
    assert rows.select("*", F.lit(1).alias("one")).columns == [*rows.columns, "one"]
    assert rows.select("k", rows.x, rows["s"], "s.a").columns == ["k", "x", "s", "a"]
    assert rows.drop("x", F.col("k"), *base).columns == ["s"]
    assert rows.drop(*base).withColumnRenamed("X", "y").columns == ["k", "y", "s"]
    added = rows.drop(*base).withColumns({"K": F.upper("k"), "n": F.length("k")})
    assert added.columns == ["K", "x", "s", "n"]
    assert rows.selectExpr("k", "x + 1 AS y").columns == ["k", "y"]
    assert rows.selectExpr(["*", "x AS y"]).columns == [*rows.columns, "y"]
    assert rows.withColumn("l", F.explode(F.split("k", ""))).columns == [*rows.columns, "l"]
    with pytest.raises(AttributeError, match="nope"):
        rows.nope  # noqa: B018


@pytest.mark.parametrize(
    ("declare", "said"),
    [
        (lambda rows: rows.selct("k"), r"of 't' has no verb and no column 'selct'; .*'k', 'x'"),
        (lambda rows: rows.groupBy("k").sum("x"), r"no verb 'sum'; it has .*'agg'.*agg\.sum"),
        (lambda rows: rows.groupBy("k").agg("s", a=agg.avg("x")), r"no aggregate 'avg'.*keep both"),  # type: ignore[attr-defined]
        (lambda rows: rows.groupBy("k").count("s").to("t"), r"a table has no verb 'to'.*toStream"),
        (
            lambda rows: rows.groupBy("k").count("s").toStream().where("count > 1"),
            r"no verb 'where'; it has \['to'\]\. Shape rows before.*another application",
        ),
        (
            lambda rows: (
                rows.groupBy("k")
                .transformWithState(Violations(), COUNTED, "Update", "None", name="p")
                .select("id")
            ),
            r"a processor yields has no verb 'select'.*Let it yield",
        ),
    ],
    ids=["stream", "grouped", "aggregate", "table", "changes", "processed"],
)
def test_a_verb_that_there_is_not_is_a_mistake_in_the_job(
    spark: SparkSession, declare: Callable[[KStream], object], said: str
) -> None:
    """Not one of Python's errors only, after which a supervisor tries again."""
    rows = Application("app", spark).stream("t", "k STRING, x BIGINT")
    with pytest.raises(ConfigurationError, match=said) as refused:
        declare(rows)
    assert isinstance(refused.value, AttributeError), "as Python says it"
    assert not hasattr(rows.groupBy("k"), "sum")


def test_types_and_the_keys_name_are_sparks(spark: SparkSession) -> None:
    app = Application("app", spark)
    rows = app.stream("t", "k STRING, i INT, d DOUBLE, f BOOLEAN")
    rows.groupBy(F.upper("k").alias("K")).agg(
        Materialized("s", backend="memory"),
        n=agg.count(), yes=agg.count_if(F.col("f")), i=agg.sum(F.col("i")), d=agg.max("d / 2"),
        k=agg.last("k"), f=agg.last("f"),
    )  # fmt: skip
    rows.groupBy("i").count("by_number")
    rows.groupBy("key").windowedBy(TimeWindows("1 hour")).count(Materialized("w", "400 days"))
    rows.groupBy(F.upper("k")).count("unnamed")
    one, two, three, four = (verb.kept for verb in app.aggregations)
    types = {name: (f.op, f.type) for name, f in one.fields.items()}
    assert types == {
        "n": ("count", "int64"), "yes": ("count", "int64"), "i": ("sum", "int64"),
        "d": ("max", "float64"), "k": ("last", "utf8"), "f": ("last", "bool"),
    }  # fmt: skip
    assert [v.key_serde for v in (one, two, three)] == ["utf8", "int64", "bytes"]
    assert [v.key_name for v in (one, two, three, four)] == ["K", "i", "key", "key"]
    assert (one.store.backend, three.store.retention_ms) == ("memory", 400 * 86_400_000)


KEYS = {
    "string": "utf8", "binary": "bytes", "tinyint": "int64", "bigint": "int64", "boolean": "bool",
    "date": "date", "timestamp": "timestamp", "timestamp_ntz": "timestamp_ntz",
    "decimal(18,2)": "decimal(18,2)",
}  # fmt: skip


def test_keys_of_several_columns_have_their_types_and_names(spark: SparkSession) -> None:
    app = Application("app", spark)
    rows = app.stream("t", ", ".join(f"c{i} {sql}" for i, sql in enumerate(KEYS)))
    names = [f"c{i}" for i in range(len(KEYS))]
    rows.groupBy(*names).count("all")
    rows.groupBy(F.struct(*names)).count("together")
    rows.groupBy(F.struct("c0", F.col("c1").alias("d")).alias("pair")).count("pairs")
    rows.groupBy(["c0", F.upper("c0").alias("up")]).count("made")
    for name in names:
        rows.groupBy(name).count(name)
    whole, together, pairs, made, *single = (verb.kept for verb in app.aggregations)
    described = {"struct": [[n, kind] for n, kind in zip(names, KEYS.values(), strict=True)]}
    assert whole.key_serde == together.key_serde == whole.store.key_serde == described
    assert pairs.key_serde == {"struct": [["c0", "utf8"], ["d", "bytes"]]}
    assert (whole.key_names, together.key_names) == (names, names)
    assert (pairs.key_names, made.key_names) == (["pair"], ["c0", "up"])
    assert [one.key_serde for one in single] == [*KEYS.values()]


def test_types_of_values_are_derived_whatever_they_are_made_of(spark: SparkSession) -> None:
    app = Application("app", spark)
    ddl = "k STRING, a ARRAY<INT>, m MAP<STRING, STRUCT<d: DATE, `a b`: FLOAT>>, p DECIMAL(5, 2)"
    rows = app.stream("t", f"{ddl}, t TIMESTAMP, b BINARY")
    rows.groupBy("k").agg(
        "s", a=agg.last("a"), m=agg.last("m"), p=agg.max("p"), t=agg.min("t"), b=agg.min("b"),
        both=agg.last(F.struct("k", F.col("p").alias("price"))), some=agg.count("m"),
        total=agg.sum("p"), newest=agg.max(F.struct("t", "k")),
    )  # fmt: skip
    (kept,) = (verb.kept for verb in app.aggregations)
    types = {name: field.type for name, field in kept.fields.items()}
    assert types == {
        "a": {"array": "int64"},
        "m": {"map": ["utf8", {"struct": [["d", "date"], ["a b", "float64"]]}]},
        "p": "decimal(5,2)", "t": "timestamp", "b": "bytes", "some": "int64",
        "both": {"struct": [["k", "utf8"], ["price", "decimal(5,2)"]]},
        "total": "decimal(38,2)", "newest": {"struct": [["t", "timestamp"], ["k", "utf8"]]},
    }  # fmt: skip
    prepared(spark, app, plan_of(app))


def test_lambdas_whose_texts_are_the_same_are_told_apart(spark: SparkSession) -> None:
    """Spark's text has no names for their variables: two branches would be taken for one."""

    def step(join: Callable[[Column, Column], Column]) -> KStream:
        rows = Application("app", spark).stream("t", "a ARRAY<STRING>, b ARRAY<STRING>")
        return rows.select(
            F.transform("a", lambda x: F.transform("b", lambda y: join(x, y))).alias("c")
        )

    one, other, again = (
        step(join)._steps[0] for join in (F.concat, lambda x, y: F.concat(y, x), F.concat)
    )
    assert one != other
    assert one == again


def test_what_executors_are_sent_is_plain_data(spark: SparkSession) -> None:
    app = Application("app", spark)
    rows = app.stream("t", "k STRING, x BIGINT").where(F.col("x") > 1)
    rows.groupBy(F.upper("k")).agg("s", total=agg.sum(F.col("x") * 2))
    sent = pickle.dumps(tuple(verb.kept for verb in app.aggregations))
    assert b"pyspark" not in sent
    assert b"py4j" not in pickle.dumps(app.aggregations)
    assert pickle.loads(pickle.dumps(app.aggregations)) == app.aggregations  # noqa: S301 - ours


def test_a_users_session_is_used_and_stays_as_it_is(spark: SparkSession) -> None:
    theirs = {
        "spark.sql.adaptive.enabled": "true",
        "spark.sql.ansi.enabled": "false",
        "spark.sql.session.timeZone": "America/New_York",
    }
    before = {setting: str(spark.conf.get(setting)) for setting in theirs}
    try:
        for setting, value in theirs.items():
            spark.conf.set(setting, value)
        opened = Opened("app", spark)
        session = opened.session()
        assert [session.conf.get(setting) for setting in theirs] == ["false", "true", "UTC"]
        assert {setting: spark.conf.get(setting) for setting in theirs} == theirs
        opened.stop()
        assert spark.range(3).count() == 3, "it is the user's to stop"
    finally:
        for setting, value in before.items():
            spark.conf.set(setting, value)


def test_what_depends_on_the_record_alone_is_taken(spark: SparkSession) -> None:
    app = Application("app", spark, partitions=4)
    rows = app.stream("t", "k STRING, x DOUBLE").where("x > 1 AND k RLIKE 'a'")
    rows.withColumn("y", F.expr("sha2(k, 256)")).withColumn(
        "z", F.expr("explode(split(y, 'a'))")
    ).groupBy("z").agg(
        "all",
        n=agg.count(),
        total=agg.sum("x"),
        last=agg.last("y"),
        most=agg.max("x"),
    )
    rows.groupBy("k").windowedBy(TimeWindows("1 hour")).count("hourly")
    prepared(spark, app, plan_of(app))


def test_what_was_built_for_the_check_serves_the_batches(spark: SparkSession) -> None:
    app = Application("app", spark, partitions=4)
    app.stream("t", "k STRING, x BIGINT").groupBy("k").agg("all", n=agg.sum("x"))
    empty = plan_of(app)
    combiner = prepared(spark, app, empty)
    known = dict(combiner._templates)
    rows: list[Row] = [(None, b'{"k": "a", "x": 1}', i % 2, i, NOW) for i in range(5)]
    plan = replace(empty, epoch=3, batch_number=1, now=NOW, stream_time_ms=NOW, max_future_ms=1)
    found = combiner.combine(source(spark, rows), plan)
    alone = combine(spark, source(spark, rows), app.aggregations, 4, plan)
    assert sorted(map(str, found.collect())) == sorted(map(str, alone.collect()))
    assert combiner._templates == known, "nothing was built anew"


def test_what_only_a_batch_cannot_compute_is_refused_at_once(spark: SparkSession) -> None:
    """No other try helps, so it is none of Spark's errors, after which there is one."""
    app = counting("app", {"t": "s"})
    app.aggregations[0] = replace(app.aggregations[0], key=Expression("nope"))
    plan = first_plan(app, {"t": TopicFacts("t", "id", 2, 1)}, {})
    with pytest.raises(ConfigurationError, match=r"'app' declares what cannot .*in a batch.*nope"):
        prepared(spark, app, plan)


def test_a_session_that_is_there_is_taken_and_left(spark: SparkSession) -> None:
    opened = Opened("app")
    session = opened.session()
    assert session is not spark
    assert session.sparkContext is spark.sparkContext
    opened.stop()
    assert spark.range(3).count() == 3
    assert opened.session() is session


@pytest.mark.parametrize("name", ["__hf_x", "__HF_ts"])
def test_a_field_that_begins_as_our_columns_is_refused(spark: SparkSession, name: str) -> None:
    """It would hide the column of that name: the record's own time, for example."""
    app = Application("app", spark, partitions=4)
    with pytest.raises(InvalidName, match=f"'{name}'.*begins those of Holdfast"):
        app.stream("t", f"k STRING, {name} STRING")
    rows = app.stream("t", "k STRING")
    adds: tuple[Callable[[], object], ...] = (
        lambda: rows.withColumn(name, F.lit(1)),
        lambda: rows.select(F.lit(1).alias(name)),
        lambda: rows.withColumnRenamed("k", name),
    )
    for add in adds:
        with pytest.raises(InvalidName, match="Holdfast"):
            add()
