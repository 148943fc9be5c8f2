"""A job that uses every verb: what the class archive is made from (`state_lib.spark.training`)."""

from __future__ import annotations

from collections.abc import Iterator

import orjson

from state_lib import aggregates as agg
from state_lib.application import Application
from state_lib.grouped import Materialized, TimeWindows

PARTITIONS = 2

SOURCES = ("lines", "orders", "records")


def declare(app: Application) -> None:
    """Every verb, on every format."""
    from pyspark.sql import functions as F  # noqa: N812, PLC0415 - whoever loads topics needs none

    (
        app.stream("lines", format="text")
        .select(F.explode(F.split(F.lower("value"), " ")).alias("word"))
        .where("word <> ''")
        .groupBy("word")
        .count("words")
        .toStream()
        .to("word-counts")
    )

    orders = app.stream("orders", "shop STRING NOT NULL, cents BIGINT, weight DOUBLE")
    orders = orders.withColumn("euros", F.col("cents") / 100)

    (
        orders.groupBy("shop")
        .windowedBy(TimeWindows("1 hour", grace="1 hour"))
        .agg(
            Materialized("sales"),
            orders=agg.count(),
            cents=agg.sum("cents"),
            weight=agg.sum("weight"),
            least=agg.min("cents"),
            most=agg.max("euros"),
        )
    )

    (
        orders.groupBy("cents")
        .agg(Materialized("last_shop"), shop=agg.last("shop"))
        .toStream()
        .to("last-shops")
    )

    app.stream("records").groupBy("key").count("seen")


def records(numbers: range) -> Iterator[tuple[str, bytes, bytes]]:
    """Topic, key and value of so many records for each source."""
    for n in numbers:
        order = {"shop": f"shop {n % 50}", "cents": n, "weight": n / 7}
        yield "lines", b"", f"The quick brown fox {n % 100}".encode()
        yield "orders", b"", orjson.dumps(order)
        yield "records", b"%d" % (n % 1000), b""


if __name__ == "__main__":
    exercise = Application("exercise", partitions=PARTITIONS)
    declare(exercise)
    exercise.run()
