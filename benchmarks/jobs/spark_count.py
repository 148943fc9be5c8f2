"""The same query with Spark's own state, on its RocksDB provider; the counts go to Kafka.

Writes ``{"event": "digest", …}`` when it is asked for by a line on standard input, and
``{"event": "failed", …}`` if the query ends by itself.
"""

import json
import os
import sys
import threading
from typing import Any

import counting  # type: ignore[import-not-found]  # beside this file
from pyspark import cloudpickle
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it
from pyspark.sql.streaming.query import StreamingQuery

from state_lib.config import Settings
from state_lib.spark.session import kafka_options, open_session

PROVIDER = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
STATE: dict[str, tuple[dict[str, str], str]] = {
    # Of `groupBy`; of a `transformWithState`, whose variables are tables of their own.
    "groupBy": ({}, "value.count"),
    "transformWithState": ({"stateVarName": "count"}, "value.value"),
    "transformWithState, Python": ({"stateVarName": "n"}, "value.n"),
}


def main() -> None:
    """Run until standard input is closed."""
    settings, verb = Settings.load(), os.environ["BENCH_VERB"]
    checkpoint = os.environ["BENCH_CHECKPOINT"]
    spark = open_session(
        os.environ["BENCH_APP"],
        settings,
        spark_jars=os.environ["BENCH_JAR"],
        spark_sql_shuffle_partitions="4",
        spark_sql_streaming_stateStore_providerClass=PROVIDER,
        spark_sql_streaming_stateStore_rocksdb_changelogCheckpointing_enabled="true",
    )
    spark.conf.set("spark.sql.streaming.stopTimeout", "120s")  # a batch may be under way
    query = (
        counted(spark, records(spark, settings), verb)
        .writeStream.format("kafka")
        .option("kafka.bootstrap.servers", settings.bootstrap_servers)
        .option("topic", os.environ["BENCH_COUNTS"])
        .outputMode("update")
        .option("checkpointLocation", checkpoint)
        .start()
    )
    threading.Thread(target=watch, args=[query], daemon=True).start()
    for _ in sys.stdin:
        query.stop()
        options, count = STATE[verb]
        state = spark.read.format("statestore").options(**options).load(checkpoint)
        entries, total = state.agg(F.count("*"), F.sum(count)).first() or (0, 0)
        say(event="digest", entries=entries, total=total or 0)


def records(spark: SparkSession, settings: Settings) -> DataFrame:
    """The source: one column, ``key``; with windows it is the key and the window's start."""
    rows = (
        spark.readStream.format("kafka")
        .options(**kafka_options(settings, [os.environ["BENCH_TOPIC"]]))
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", settings.max_offsets_per_trigger)
        .load()
    )
    window_ms = int(os.environ["BENCH_WINDOW_MS"])
    if not window_ms:
        return rows.select("key")
    at = F.unix_millis("timestamp")
    return rows.select(F.concat("key", big_endian(at - at % window_ms)).alias("key"))


def counted(spark: SparkSession, rows: DataFrame, verb: str) -> DataFrame:
    """``key`` and ``value``, the new count in eight bytes: what the others write to changelogs."""
    if verb == "groupBy":
        return rows.groupBy("key").count().select("key", big_endian(F.col("count")).alias("value"))
    if verb != "transformWithState":
        cloudpickle.register_pickle_by_value(counting)  # executors have not this folder
        by_key = rows.groupBy("key")
        made = by_key.transformWithState(counting.Counting(), counting.RESULTS, "Update", "None")
        return made.select("key", big_endian(F.col("n")).alias("value"))
    jvm: Any = spark._jvm  # noqa: SLF001 - the only way to a class of one's own
    return DataFrame(jvm.SparkCount.count(rows._jdf), spark)  # noqa: SLF001 - as above


def big_endian(column: Any) -> Any:
    """A long in eight bytes."""
    return F.unhex(F.lpad(F.hex(column), 16, "0"))


def watch(query: StreamingQuery) -> None:
    """Tell if the query fails: this process would only wait."""
    try:
        query.awaitTermination()
    except Exception as error:  # noqa: BLE001 - whatever it is, it is told
        say(event="failed", why=str(error)[:2000])


def say(**event: Any) -> None:
    """Tell who started this."""
    print(json.dumps(event), flush=True)


if __name__ == "__main__":
    main()
