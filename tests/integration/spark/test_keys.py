"""Keys of several columns and of every type, from the record to store, output and dead letter."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import orjson
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import Column, Row, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from state_lib import Application, Materialized, TimeWindows, TopologyTestDriver, agg
from state_lib.errors import ConfigurationError, SerdeError
from state_lib.keys import partition_for
from state_lib.serdes import serde_from
from state_lib.serdes.kinds import kind_from
from state_lib.spark.given import beside
from state_lib.spark.keys import key_bytes
from state_lib.spark.kinds import sql_of
from state_lib.testing.session import give_back
from tests.support.documents import written
from tests.support.processors import Doing

T0 = 1_700_000_000_000 // 3_600_000 * 3_600_000
FLIGHT = "origin STRING, dest STRING, day DATE, seats BIGINT"
ROUTE = ("JFK", "LAX")


def routes(app: Application) -> None:
    rows = app.stream("flights", FLIGHT)
    by_route = rows.groupBy("origin", "dest").agg("routes", n=agg.count(), seats=agg.sum("seats"))
    by_route.toStream().to("by-route")
    days = rows.groupBy(F.struct("day", "origin").alias("at"))
    days.windowedBy(TimeWindows("1 hour")).count("daily").toStream().to("by-day")


def flight(**fields: Any) -> dict[str, Any]:
    return {"origin": "JFK", "dest": "LAX", "day": "2013-01-31", "seats": 100, **fields}


def test_routes_are_counted(spark: SparkSession) -> None:
    with TopologyTestDriver(routes, spark, partitions=3) as driver:
        flights = driver.createInputTopic("flights")
        for fields in ({}, {"dest": "SFO"}, {}, {"origin": "JF", "dest": "KLAX"}):
            flights.pipeInput(flight(**fields), timestamp=T0)
        kept = driver.getKeyValueStore("routes")
        both = {"n": 2, "seats": 200}
        assert kept.get(ROUTE) == kept.get(Row(origin="JFK", dest="LAX")) == both
        assert kept.get({"dest": "LAX", "origin": "JFK"}) == both
        assert kept.get(("JFKL", "AX")) is None
        assert kept.all().keys() == {ROUTE, ("JFK", "SFO"), ("JF", "KLAX")}
        assert {key.dest for key in kept.all()} == {"LAX", "SFO", "KLAX"}
        records = driver.createOutputTopic("by-route").readRecordsToList()
        raw = serde_from({"struct": [["origin", "utf8"], ["dest", "utf8"]]})
        told = {r.key: r for r in records}
        assert told[ROUTE].value == {"origin": "JFK", "dest": "LAX", **both}
        assert list(told[ROUTE].value) == ["origin", "dest", "n", "seats"]
        for r in records:
            assert r.partition == partition_for(raw.serialize(r.key.asDict()), 3)
        for wrong in ("JFK", ("JFK",), {"origin": "JFK"}, (1, 2)):
            with pytest.raises(SerdeError):
                kept.get(wrong)
        driver.assertSameHoweverCut()
        driver.assertSurvivesRepeats()


def test_a_struct_is_one_column_of_outputs(spark: SparkSession) -> None:
    with TopologyTestDriver(routes, spark) as driver:
        driver.createInputTopic("flights").pipeInput(flight(), timestamp=T0)
        day = dt.date(2013, 1, 31)
        daily = driver.getWindowStore("daily")
        assert daily.all() == {((day, "JFK"), T0): 1}
        assert daily.get((day, "JFK"), T0) == 1
        assert daily.fetch({"origin": "JFK", "day": day}) == {T0: 1}
        (record,) = driver.createOutputTopic("by-day").readRecordsToList()
        assert record.key == ((day, "JFK"), T0)
        assert record.value["at"] == {"day": "2013-01-31", "origin": "JFK"}
        assert record.value["window_start"] == T0


def test_a_column_that_is_null_is_a_dead_letter(spark: SparkSession) -> None:
    def build(app: Application) -> None:
        rows = app.stream("flights", FLIGHT)
        rows.groupBy("origin", "dest").count("routes")
        struct = F.struct("origin", "day")
        rows.groupBy(F.when(F.col("seats") > 0, struct).alias("at")).count("days")

    with TopologyTestDriver(build, spark) as driver:
        flights = driver.createInputTopic("flights")
        flights.pipeInput(flight(dest=None), timestamp=T0)
        flights.pipeInput(flight(origin=None), timestamp=T0)
        flights.pipeInput(flight(origin=None, dest=None), timestamp=T0)
        flights.pipeInput(flight(day=None), timestamp=T0)
        flights.pipeInput(flight(seats=0), timestamp=T0)
        letters = sorted((one.offset, one.reason) for one in driver.deadLetters())
        assert letters == [
            (0, "null-key:routes.dest"),
            (1, "null-key:days.origin"), (1, "null-key:routes.origin"),
            (2, "null-key:days.origin"), (2, "null-key:routes.origin"),
            (3, "null-key:days.day"),
        ]  # fmt: skip
        (first,) = (one for one in driver.deadLetters() if one.offset == 0)
        assert orjson.loads(first.value or b"") == flight(dest=None), "the record as it came"
        dropped = driver.droppedRecords()
        assert dropped.pop("null-key:days") == 1, "there is no struct at all"
        assert sum(dropped.values()) == len(letters)
        assert driver.getKeyValueStore("routes").all() == {ROUTE: 2}
        assert driver.getKeyValueStore("days").all() == {("JFK", dt.date(2013, 1, 31)): 1}
        driver.assertSurvivesRepeats()


def test_parts_of_a_key_are_judged_as_keys_are(spark: SparkSession) -> None:
    def build(app: Application) -> None:
        rows = app.stream("flights", f"{FLIGHT}, hex STRING")
        bad = F.unhex("hex").cast("string").alias("bad")
        rows.groupBy("origin", bad).count("texts")
        far = F.date_add("day", F.col("seats").cast("int")).alias("far")
        rows.groupBy("origin", far).count("days")
        rows.groupBy("dest", F.expr("10 div seats").alias("share")).count("shares")

    with TopologyTestDriver(build, spark) as driver:
        flights = driver.createInputTopic("flights")
        flights.pipeInput(flight(seats=1, hex="ff"), timestamp=T0)
        flights.pipeInput(flight(seats=5_000_000, hex="61"), timestamp=T0)
        flights.pipeInput(flight(seats=0, hex="62"), timestamp=T0)
        assert sorted((one.offset, one.reason) for one in driver.deadLetters()) == [
            (0, "not-utf8:texts.bad"), (1, "out-of-range:days.far"), (2, "failed:shares.key"),
        ]  # fmt: skip
        assert driver.getKeyValueStore("texts").all() == {("JFK", "a"): 1, ("JFK", "b"): 1}


def test_a_key_that_is_too_large_is_a_dead_letter(spark: SparkSession) -> None:
    with TopologyTestDriver(routes, spark) as driver:
        flights = driver.createInputTopic("flights")
        flights.pipeInput(flight(dest="x" * 2_000_000), timestamp=T0)
        flights.pipeInput(flight(dest="x" * 100_000), timestamp=T0)
        assert [one.reason for one in driver.deadLetters()] == ["too-large:routes"]
        assert [len(key.dest) for key in driver.getKeyValueStore("routes").all()] == [100_000]


# ---------------------------------------------------------------------- bytes

KINDS: dict[str, Any] = {
    "utf8": st.text(max_size=4),
    "bytes": st.binary(max_size=4),
    "int64": st.integers(-(2**63), 2**63 - 1),
    "bool": st.booleans(),
    "date": st.dates(),
    "timestamp": st.datetimes(timezones=st.just(dt.UTC)),
    "timestamp_ntz": st.datetimes(),
    "decimal(18,2)": st.integers(1 - 10**18, 10**18 - 1).map(lambda n: Decimal(n).scaleb(-2)),
    "decimal(18,18)": st.integers(1 - 10**18, 10**18 - 1).map(lambda n: Decimal(n).scaleb(-18)),
}
ALL = {"struct": [[f"c {i}", kind] for i, kind in enumerate(KINDS)]}


@pytest.fixture(scope="module")
def ours(spark: SparkSession) -> SparkSession:
    """With the settings under which keys are made."""
    return beside(spark)


@settings(max_examples=12, deadline=None)
@given(data=st.data())
def test_spark_writes_the_bytes_of_the_serde(ours: SparkSession, data: st.DataObject) -> None:
    row = st.fixed_dictionaries({f"c {i}": values for i, values in enumerate(KINDS.values())})
    rows = data.draw(st.lists(row, min_size=1, max_size=20))
    columns = {
        name: pa.array([r[name] for r in rows], kind_from(kind).arrow_type)
        for name, kind in ALL["struct"]
    }
    frame = ours.createDataFrame(pa.table(columns))
    key = F.struct(*(F.col(f"`{name}`").alias(name) for name in columns)).cast(sql_of(ALL))
    single = [key_bytes(kind, F.col(f"`{name}`")) for name, kind in ALL["struct"]]
    found = frame.select(key_bytes(ALL, key), *single).collect()
    for given_, made in zip(rows, found, strict=True):
        wanted = [serde_from(ALL).serialize(given_)]
        wanted += [serde_from(kind).serialize(given_[name]) for name, kind in ALL["struct"]]
        assert [bytes(part) for part in made] == wanted


def test_keys_of_one_column_have_the_bytes_that_they_had(ours: SparkSession) -> None:
    frame = ours.createDataFrame([("ü", b"\0\xff", -2)], "t STRING, b BINARY, n BIGINT")
    columns = (("utf8", "t"), ("bytes", "b"), ("int64", "n"))
    (row,) = frame.select(*(key_bytes(kind, F.col(name)) for kind, name in columns)).collect()
    assert [bytes(v) for v in row] == ["ü".encode(), b"\0\xff", b"\xff" * 7 + b"\xfe"]


def test_keys_of_one_column_of_other_types(spark: SparkSession) -> None:
    def build(app: Application) -> None:
        rows = app.stream("in", "d DATE, t TIMESTAMP, b BOOLEAN, p DECIMAL(10, 2)")
        for name in "dtbp":
            kept = Materialized(f"by-{name}", backend="memory")
            rows.groupBy(name).count(kept).toStream().to(f"out-{name}")

    with TopologyTestDriver(build, spark) as driver:
        body = {"d": "1969-12-31", "t": "2013-01-31T12:00:00Z", "b": True, "p": 1.5}
        driver.createInputTopic("in").pipeInput(body, timestamp=T0)
        driver.createInputTopic("in").pipeInput({}, timestamp=T0)
        keys = {
            "d": dt.date(1969, 12, 31), "b": True, "p": Decimal("1.50"),
            "t": dt.datetime(2013, 1, 31, 12, tzinfo=dt.UTC),
        }  # fmt: skip
        shown = {"d": "1969-12-31", "t": "2013-01-31T12:00:00.000Z", "b": True, "p": "1.50"}
        for name, key in keys.items():
            assert driver.getKeyValueStore(f"by-{name}").all() == {key: 1}
            told = driver.createOutputTopic(f"out-{name}").readKeyValuesToList()
            assert told == [(key, {name: shown[name], "count": 1})]
        assert driver.droppedRecords() == {f"null-key:by-{name}": 1 for name in keys}


# ---------------------------------------------------------------------- processors


def add(self: Any, key: Any, rows: Any, _: Any) -> Any:
    self.n.update(((self.n.get() or (0,))[0] + sum(r.seats for r in rows),))
    yield Row(k="/".join(map(str, key)), x=self.n.get()[0])


class Opening(Doing):
    """Begins with what it is given."""

    n: Any

    def handleInitialState(  # noqa: N802 - Spark's
        self,
        key: Any,
        initialState: Any,  # noqa: N803 - as above
        timerValues: Any,  # noqa: N803 - as above
    ) -> None:
        assert key == (initialState.a, initialState.b)
        self.n.update((initialState.seats,))
        del timerValues


STATE = {"n": lambda handle, name: handle.getValueState(name, "n BIGINT", None)}
SEATS = "a STRING, b STRING, seats BIGINT"


def opening(initial: object, *by: Column | str) -> Callable[[Application], None]:
    def build(app: Application) -> None:
        app.stream("flights", FLIGHT).groupBy(*by).transformWithState(
            Opening(STATE, add), "k STRING, x BIGINT", "Append", "None", name="p",
            initialState=initial,
        ).to("out")  # fmt: skip

    return build


def test_a_processor_has_a_key_of_several_columns(spark: SparkSession) -> None:
    given_ = spark.createDataFrame([("JFK", "LAX", 7), ("LGA", "SFO", 9)], SEATS)
    build = opening(given_.groupBy("a", "b"), "origin", "dest")
    with TopologyTestDriver(build, spark, partitions=2) as driver:
        seats = driver.getKeyValueStore("p-n")
        assert seats.all() == {ROUTE: {"n": 7}, ("LGA", "SFO"): {"n": 9}}
        flights = driver.createInputTopic("flights")
        flights.pipeInput(flight(), timestamp=T0)
        flights.pipeInput(flight(dest=None), timestamp=T0)
        told = driver.createOutputTopic("out").readKeyValuesToList()
        assert told == [(ROUTE, {"k": "JFK/LAX", "x": 107})]
        assert [one.reason for one in driver.deadLetters()] == ["null-key:p.dest"]
        driver.assertSurvivesRepeats()


def test_what_a_processor_cannot_be_given_is_refused(spark: SparkSession) -> None:
    rows = Application("app", spark).stream("flights", FLIGHT)
    given_ = spark.createDataFrame([("a", 1)], "a STRING, b INT")
    routes = spark.createDataFrame([("LAX", "JFK")], "dest STRING, Origin STRING")
    at = rows.withColumn("at", F.struct("origin"))
    for grouped, initial, words in (
        (rows.groupBy(F.struct("origin").alias("at")), None, r"\.alias\('at'\) out"),
        (at.groupBy("at"), None, r"groupBy\('at\.origin'\)"),
        (at.groupBy(F.col("at").alias("from")), None, r"groupBy\('at\.origin'\)"),
        (rows.groupBy("origin", "dest"), routes.groupBy("dest", "origin"), "in their order"),
        (rows.groupBy("origin", "dest"), given_.groupBy("a"), "1 columns, the stream by 2"),
        (rows.groupBy("origin", "dest"), given_.groupBy("a", "b"), "grouped by struct"),
    ):
        with pytest.raises(ConfigurationError, match=words):
            grouped.transformWithState(
                Doing(STATE, add), "k STRING", "Append", "None", name="p", initialState=initial
            )
    rows.groupBy("origin", "dest").transformWithState(
        Doing(STATE, add), "k STRING", "Append", "None", name="p",
        initialState=routes.groupBy("origin", "dest"),
    )  # fmt: skip


FAR = "date_add(DATE'2000-01-01', 5000000)"


@pytest.mark.parametrize(
    ("a", "b", "words"),
    [
        ("'JFK'", "CAST(NULL AS STRING)", r"1 rows .*'{JFK, null}' \(null-key:p\.dest\)"),
        ("CAST(NULL AS STRING)", "CAST(NULL AS STRING)", r"null-key:p\.origin"),
        ("CAST(x'ff' AS STRING)", "'LAX'", r"not-utf8:p\.origin"),
        (FAR, "'LAX'", r"out-of-range:p\.day"),
    ],
)
def test_what_a_processor_begins_with_has_whole_keys(
    spark: SparkSession, a: str, b: str, words: str
) -> None:
    """Of a stream such rows are dead letters; here somebody is there to be told."""
    good = spark.createDataFrame([("LGA", "SFO", 9)], SEATS).selectExpr("a", "b", "seats")
    bad = spark.range(1).selectExpr(f"{a} AS a", f"{b} AS b", "1L AS seats")
    if a == FAR:
        build = opening(bad.groupBy("a", "b"), "day", "dest")
    else:
        build = opening(good.union(bad).groupBy("a", "b"), "origin", "dest")
    with pytest.raises(ConfigurationError, match=words), TopologyTestDriver(build, spark):
        pass


def test_keys_of_what_it_begins_with_are_made_by_our_settings(spark: SparkSession) -> None:
    """Without ANSI a small decimal's text has an exponent, and its digits would be none."""
    price, other = F.col("seats").cast("decimal(18, 8)").alias("price"), spark.newSession()
    other.conf.set("spark.sql.ansi.enabled", "false")
    rows = other.sql("SELECT 0BD AS a, 'LAX' AS b, 7L AS seats UNION ALL SELECT 1E-8BD, 'LAX', 8L")
    rows = rows.withColumn("a", F.col("a").cast("decimal(18, 8)"))
    give_back(other)
    try:
        build = opening(rows.groupBy("a", "b"), price, "dest")
        with TopologyTestDriver(build, spark, partitions=2) as driver:
            keys = {(Decimal(digits), "LAX"): {"n": n} for digits, n in (("0E-8", 7), ("1E-8", 8))}
            assert driver.getKeyValueStore("p-n").all() == keys
    finally:
        give_back(spark)


def test_the_page_about_keys_and_values(spark: SparkSession) -> None:
    block = written()["docs/how-to/keys-and-values.md"].blocks[0]
    there: dict[str, Callable[..., None]] = {}
    exec(compile(block.text, block.title, "exec"), there)  # noqa: S102 - it is ours
    there["test_routes"](spark)
