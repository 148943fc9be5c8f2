"""A job as a user writes it: a type checker has nothing to say of it."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pyspark.sql import Column, Row, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it
from pyspark.sql.streaming.stateful_processor import (  # PySpark does not say that it exports them
    StatefulProcessor,
    StatefulProcessorHandle,
)
from pyspark.sql.types import LongType, StringType, StructType

from state_lib import (
    Application,
    ConfigurationError,
    KGroupedStream,
    KStream,
    KTable,
    Materialized,
    TimeWindows,
    agg,
)
from state_lib.client.query import QueryClient
from state_lib.config import Settings


class Seen(StatefulProcessor):
    """As PySpark wants it."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        """One value state."""
        self.handle, self.seen = handle, handle.getValueState("seen", "at BIGINT")

    def handleInputRows(  # noqa: N802 - Spark's
        self,
        key: Any,
        rows: Any,
        timerValues: Any,  # noqa: N803 - as above
    ) -> Iterator[Row]:
        """Count."""
        del timerValues
        self.seen.update((len(list(rows)),))
        yield Row(k=key[0])

    def close(self) -> None:
        """Nothing to close."""


def declare(spark: SparkSession) -> Application:
    """Every verb, with columns and with text."""
    app = Application("app", spark, partitions=4)
    schema = StructType().add("k", StringType(), nullable=False).add("x", LongType())
    rows: KStream = app.stream("events", schema)
    column: Column = rows["x"]
    same: Column = rows.x
    rows = rows.select("*", F.explode(F.split("k", ",")).alias("part")).where("part <> ''")
    rows = rows.withColumn("y", column + same).withColumns({"z": F.lit(1)}).filter(rows.x > 0)
    rows = rows.selectExpr("*", "x + 1 AS more").drop("more")
    rows = rows.withColumnRenamed("y", "w").drop("z", F.col("key"))
    rows = rows.withColumn("upper", F.udf(str.upper, StringType())("part"))
    grouped: KGroupedStream = rows.groupBy("part")
    table: KTable = grouped.windowedBy(TimeWindows("1 hour", grace="24 hours")).agg(
        Materialized("hourly", retention="400 days"),
        n=agg.count(),
        some=agg.count("x"),
        large=agg.count_if(F.col("x") > 10),
        total=agg.sum("x"),
        least=agg.min(F.col("x")),
        most=agg.max("x"),
        last=agg.last("k"),
    )
    table.toStream().to("hourly-changes")
    routes: KGroupedStream = rows.groupBy("part", F.lower("k").alias("low"))
    routes.agg("routes", first=agg.min("k"), whole=agg.last(F.struct("k", "x")))
    rows.groupBy(F.struct("k", "part").alias("pair")).count("pairs").toStream().to("pair-changes")
    rows.groupBy(["k", F.col("x")]).count("listed")
    grouped.transformWithState(Seen(), "k STRING", "Append", "EventTime", name="seen").to("seen")
    told = grouped.transformWithState(
        Seen(), schema, "Update", "ProcessingTime", None, "", name="too", grace="1 hour"
    )
    told.to("too")
    timed = app.stream("timed", "k STRING, at TIMESTAMP", timestamp="at")
    timed.groupBy("k").count("timed")
    app.stream("planes", Path("plane.avsc"), format="avro", timestamp="built").groupBy("k").count(
        "p"
    )
    app.stream("flights", format="avro").groupBy("origin").count("flights")
    grouped.reduce(
        lambda old, new: new if new.x > old.x else old, Materialized("r"), onError="stop"
    )
    sums: KTable = grouped.windowedBy(TimeWindows("1 hour")).aggregate(
        lambda: {"n": 0}, lambda _, row, old: {"n": old.n + row.x}, "sums", "n BIGINT"
    )
    sums.toStream().to("sums")
    try:
        app.stream("lines", format="text").groupBy(F.lower("value")).count("lines")
    except ConfigurationError as error:
        print(error.message)  # noqa: T201 - a notebook
    app.describe()
    return app


def started(app: Application) -> bool | None:
    """By the words of Spark's StreamingQuery."""
    query = app.start()
    over = query.awaitTermination(timeout=10)
    if query.isActive:
        query.stop()
    print(query.id, query.name, query.lastProgress, query.recentProgress)  # noqa: T201 - as above
    if (error := query.exception()) is not None:
        raise error
    return over


def asked(token: str | None) -> list[dict[str, Any]]:
    """From another program, while it runs."""
    with QueryClient(Settings.load().host_addresses, token) as client:
        if (one := client.get("app", "routes", {"part": "a", "low": "b"})) is not None:
            print(one["value"], client.apps())  # noqa: T201 - as above
        return list(client.windows("app", "hourly", "a"))
