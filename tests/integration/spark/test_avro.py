"""Topics in Avro through Spark: the test driver, and a registry that is away or knows no id."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from state_lib import Application, Materialized, TimeWindows, TopologyTestDriver, agg
from state_lib.errors import ConfigurationError, InvalidRequest, RegistryAway, UnknownSchemas
from state_lib.executor.avro.registry import RegistrySchemas
from state_lib.executor.carried import arrived
from state_lib.executor.plan import DEAD, BatchPlan
from state_lib.protocol.positions import Positions
from state_lib.settings.registry import Registry
from state_lib.spark.frames import Combiner
from tests.support.registry import StandIn, framed, record
from tests.support.rows import NOW, Row, source
from tests.support.small_http import serving

HOUR = 3_600_000
T0 = 1_700_000_000_000 // HOUR * HOUR
LONG_AGO = record("Flight", origin="string", seats="int", gate="string")
FLIGHT = record(
    "Flight",
    origin="string",
    seats="long",
    at=({"type": "long", "logicalType": "timestamp-millis"}, T0),
    fare=(["null", {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}], None),
    legs=({"type": "array", "items": record("Leg", dest="string")}, []),
)
MOMENT = dt.datetime.fromtimestamp(T0 / 1000, dt.UTC)


def flight(origin: str = "JFK", **more: Any) -> dict[str, Any]:
    return {"origin": origin, "seats": 100, "at": MOMENT, "fare": None, "legs": [], **more}


def flights(app: Application) -> None:
    rows = app.stream("flights", json.dumps(FLIGHT), format="avro", timestamp="at")
    rows = rows.withColumn("cents", F.expr("cast(fare * 100 AS BIGINT)"))
    by_hour = rows.groupBy("origin").windowedBy(TimeWindows("1 hour"))
    kept = Materialized("hourly", retention="30 days")
    by_hour.agg(kept, n=agg.count(), seats=agg.sum("seats"), cents=agg.sum("cents"))
    legs = rows.select(F.explode("legs").alias("leg")).select(F.col("leg.dest").alias("dest"))
    legs.groupBy("dest").count("dests").toStream().to("out")


def test_a_topic_in_avro(spark: SparkSession) -> None:
    with TopologyTestDriver(flights, spark, partitions=2, now=T0 + HOUR) as driver:
        topic = driver.createInputTopic("flights")
        topic.pipeInput(flight(fare=Decimal("12.34"), legs=[{"dest": "LAX"}, {"dest": "SFO"}]))
        topic.pipeInput(flight(fare=Decimal("-0.04"), seats=2**40))
        topic.pipeInput(flight("LGA", at=MOMENT + dt.timedelta(minutes=30)))
        hourly = driver.getWindowStore("hourly")
        assert hourly.get("JFK", T0) == {"n": 2, "seats": 2**40 + 100, "cents": 1230}
        assert hourly.get("LGA", T0) == {"n": 1, "seats": 100, "cents": None}
        assert driver.getKeyValueStore("dests").all() == {"LAX": 1, "SFO": 1}
        driver.assertSameHoweverCut()
        driver.assertSurvivesRepeats()


def test_what_cannot_be_decoded_is_a_dead_letter(spark: SparkSession) -> None:
    with TopologyTestDriver(flights, spark, now=T0 + HOUR) as driver:
        topic = driver.createInputTopic("flights")
        good = framed(1, FLIGHT, flight())
        nobodys = b"\x00\x00\x00\x03\xe8" + good[5:]
        given = [good, None, b"text", good[:-2], nobodys, good + b"!", nobodys]
        for number, value in enumerate(given):
            topic.pipeInput(value, key="k", timestamp=number)
        topic.pipeInput(flight("LGA", at=MOMENT + dt.timedelta(hours=3)))
        letters = {letter.offset: letter for letter in driver.deadLetters()}
        assert {offset: letter.reason for offset, letter in letters.items()} == {
            1: "undecodable", 2: "undecodable", 3: "undecodable", 4: "unknown-schema",
            5: "undecodable", 6: "unknown-schema", 7: "future",
        }  # fmt: skip
        assert (letters[4].key, letters[4].value, letters[4].timestamp) == (b"k", nobodys, 4)
        assert (letters[3].exception, letters[4].exception) == (None, "schema 1000")
        assert driver.getWindowStore("hourly").get("JFK", T0)["n"] == 1
        driver.assertSameHoweverCut()
        driver.assertSurvivesRepeats()
        with pytest.raises(InvalidRequest, match="cannot be written by its schema"):
            topic.pipeInput({"origin": 5})


def test_files_and_their_columns(spark: SparkSession, tmp_path: Path) -> None:
    file = tmp_path / "flight.avsc"
    file.write_text(json.dumps(FLIGHT))
    app = Application("files", spark)
    rows = app.stream("flights", file, format="avro")
    assert rows.columns == [
        "key", "value", "topic", "partition", "offset", "timestamp",
        "origin", "seats", "at", "fare", "legs",
    ]  # fmt: skip
    rows.groupBy("origin").count("counts")
    other = Application("files", spark)
    file.write_text(json.dumps(record("Flight", origin="string")))
    other.stream("flights", file, format="avro").groupBy("origin").count("counts")
    assert app.fingerprint != other.fingerprint, "it is read by another schema"


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"schema": "origin STRING", "format": "avro"}, "no Avro schema"),
        ({"schema": Path("/nowhere.avsc"), "format": "avro"}, "cannot read the schema"),
        ({"schema": Path("/nowhere.avsc")}, "write format='avro' as well"),
        ({"format": "avro"}, "Set schema_registry_url"),
        ({"schema": json.dumps(record("R", ORIGIN="int", origin="int")), "format": "avro"}, "case"),
    ],
)
def test_what_is_no_schema_is_refused(
    spark: SparkSession, given: dict[str, Any], said: str
) -> None:
    with pytest.raises(ConfigurationError, match=said):
        Application("refused", spark).stream("flights", **given)


# ---------------------------------------------------------------------- with a registry


@pytest.fixture
def registry() -> Iterator[StandIn]:
    with serving(StandIn()) as server:
        yield server


class World:
    """An application whose records are decoded by a registry's schemas."""

    def __init__(self, spark: SparkSession, registry: StandIn) -> None:
        self.spark, app = spark, Application("app", spark, partitions=2)
        rows = app.stream("t", json.dumps(FLIGHT), format="avro")
        rows.groupBy("origin").agg("s", seats=agg.sum("seats"), n=agg.count())
        schemas = RegistrySchemas(Registry(registry.url))
        self.combiner = Combiner(spark, app.aggregations, 2, (), schemas)

    def combined(self, *values: bytes, unknown: tuple[int, ...] = ()) -> list[Any]:
        rows: list[Row] = [(b"k", value, 0, offset, 5) for offset, value in enumerate(values)]
        plan = BatchPlan(
            1,
            1,
            Positions(),
            Positions({("t", 0): 99, ("t", 1): 0}),
            -1,
            NOW,
            HOUR,
            {},
            unknown=unknown,
        )
        frame: DataFrame = self.combiner.combine(source(self.spark, rows), plan)
        try:
            return frame.collect()
        except (PySparkException, Py4JJavaError) as error:
            raise arrived(error) or error from None

    def reasons(self, rows: list[Any]) -> dict[int, str]:
        letters = [json.loads(bytes(r.key)) for r in rows if r.kind == DEAD]
        return {letter["offset"]: letter["reason"] for letter in letters}


def test_records_of_several_schemas_in_one_batch(spark: SparkSession, registry: StandIn) -> None:
    old, new = registry.register("t-value", LONG_AGO), registry.register("t-value", FLIGHT)
    other = registry.register("o-value", record("Other", x="int"))
    no_avro = registry.register("j-value", "{}", schemaType="JSON")
    world = World(spark, registry)
    rows = world.combined(
        framed(old, LONG_AGO, {"origin": "JFK", "seats": 5, "gate": "A"}),
        framed(new, FLIGHT, flight()),
        framed(other, record("Other", x="int"), {"x": 1}),
        framed(no_avro, FLIGHT, flight()),
    )
    assert [(r.n, r.a0_seats) for r in rows if r.kind == 0] == [(2, 105)]
    assert world.reasons(rows) == {2: "wrong-schema", 3: "wrong-schema"}


def test_a_registry_that_is_away_fails_the_batch_and_no_record(
    spark: SparkSession, registry: StandIn
) -> None:
    number = registry.register("t-value", FLIGHT)
    world, one = World(spark, registry), framed(number, FLIGHT, flight())
    registry.away = True
    with pytest.raises(RegistryAway, match=registry.url):
        world.combined(one)
    registry.away = False
    assert world.reasons(world.combined(one)) == {}


def test_an_id_stays_unknown_once_that_is_decided(spark: SparkSession, registry: StandIn) -> None:
    world, one = World(spark, registry), framed(1, FLIGHT, flight())
    with pytest.raises(UnknownSchemas) as unknown:
        world.combined(one)
    assert unknown.value.details["ids"] == [1]
    assert world.reasons(world.combined(one, unknown=(1,))) == {0: "unknown-schema"}
    registry.register("t-value", FLIGHT)
    assert world.reasons(world.combined(one, unknown=(1,))) == {0: "unknown-schema"}
    assert world.reasons(world.combined(one)) == {}
