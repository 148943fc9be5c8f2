"""A job that uses every verb: what the class archive is made from (`state_lib.spark.training`)."""

from __future__ import annotations

from collections.abc import Iterator

import orjson

from state_lib import aggregates as agg
from state_lib.application import Application, Json, Text, TimeWindows

PARTITIONS = 2

app = Application("exercise", PARTITIONS)

(
    app.stream("lines", Text())
    .explode("word", "split(lower(value), ' ')")
    .where("word <> ''")
    .group_by("word")
    .count("words")
    .to("word-counts")
)

orders = app.stream("orders", Json("shop STRING NOT NULL, cents BIGINT, weight DOUBLE"))
orders = orders.with_column("euros", "cents / 100")

(
    orders.group_by("shop")
    .windowed_by(TimeWindows("1 hour", grace="1 hour"))
    .aggregate(
        "sales",
        orders=agg.count(),
        cents=agg.sum("cents"),
        weight=agg.sum("weight", "float64"),
        least=agg.min("cents"),
        most=agg.max("euros", "float64"),
    )
)

orders.group_by("cents", "int64").aggregate("last_shop", shop=agg.last("shop")).to("last-shops")

app.stream("records").group_by("key", "bytes").count("seen")


def records(numbers: range) -> Iterator[tuple[str, bytes, bytes]]:
    """Topic, key and value of so many records for each source."""
    for n in numbers:
        order = {"shop": f"shop {n % 50}", "cents": n, "weight": n / 7}
        yield "lines", b"", f"The quick brown fox {n % 100}".encode()
        yield "orders", b"", orjson.dumps(order)
        yield "records", b"%d" % (n % 1000), b""


if __name__ == "__main__":
    app.run()
