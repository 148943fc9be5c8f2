"""Reads a store as a DataFrame, in several ways; prints how long each of them takes."""

import json
import os
import time
from collections.abc import Callable

from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F  # noqa: N812

from state_lib.config import Settings
from state_lib.spark.session import open_session

OPTIONS = {"app": os.environ["BENCH_APP"], "store": os.environ["BENCH_STORE"]}
if os.environ["BENCH_SNAPSHOT"]:
    OPTIONS["snapshot"] = os.environ["BENCH_SNAPSHOT"]
VALUES = {"columns": "key,value,timestamp"}


def main() -> None:
    """Every column of every row, in a JVM that has read nothing yet, and once more; less of it."""
    spark = open_session("bench-read", Settings.load())
    spark.range(1000).count()

    def load(**more: str) -> DataFrame:
        return spark.read.format("holdfast").options(**OPTIONS, **more).load()

    tell("first", lambda: consume(load()))
    tell("again", lambda: consume(load()))
    tell("values", lambda: consume(load(**VALUES)))
    tell("sum", lambda: sums(load(columns="value")))
    spark.stop()


def consume(frame: DataFrame) -> dict[str, int]:
    """Every column of every row, into nothing."""
    frame.write.format("noop").mode("overwrite").save()
    return {}


def sums(frame: DataFrame) -> dict[str, int]:
    """How many rows there are, and the sum of their values."""
    found: Row = frame.agg(F.count("*").alias("rows"), F.sum("value").alias("total")).collect()[0]
    return {"rows": found.rows, "total": found.total}


def tell(what: str, read: Callable[[], dict[str, int]]) -> None:
    """Time one of them, from ``load()`` to the end."""
    started = time.monotonic()
    found = read()
    seconds = time.monotonic() - started
    print(json.dumps({"event": "read", "what": what, "seconds": seconds, **found}), flush=True)


if __name__ == "__main__":
    main()
