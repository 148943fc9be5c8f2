"""The same query with Spark's own state, on its RocksDB provider, results thrown away.

Writes ``{"event": "digest", …}`` when it is asked for by a line on standard input.
"""

import json
import os
import sys

from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

from state_lib.config import Settings
from state_lib.spark.session import kafka_options, open_session

PROVIDER = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"


def main() -> None:
    """Run until standard input is closed."""
    settings = Settings.load()
    topic, checkpoint = os.environ["BENCH_TOPIC"], os.environ["BENCH_CHECKPOINT"]
    window_ms = int(os.environ["BENCH_WINDOW_MS"])
    spark = open_session(
        os.environ["BENCH_APP"],
        settings,
        spark_sql_shuffle_partitions="4",
        spark_sql_streaming_stateStore_providerClass=PROVIDER,
        spark_sql_streaming_stateStore_rocksdb_changelogCheckpointing_enabled="true",
    )
    spark.conf.set("spark.sql.streaming.stopTimeout", "120s")  # a batch may be under way
    rows = (
        spark.readStream.format("kafka")
        .options(**kafka_options(settings, [topic]))
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", settings.max_offsets_per_trigger)
        .load()
    )
    columns = [F.col("key")]
    if window_ms:
        columns.append(F.window("timestamp", f"{window_ms} milliseconds"))
        rows = rows.withWatermark("timestamp", "24 hours")
    query = (
        rows.groupBy(*columns)
        .count()
        .writeStream.format("noop")
        .outputMode("update")
        .option("checkpointLocation", checkpoint)
        .start()
    )
    for _ in sys.stdin:
        query.stop()
        state = spark.read.format("statestore").load(checkpoint)
        entries, total = state.agg(F.count("*"), F.sum("value.count")).first() or (0, 0)
        print(json.dumps({"event": "digest", "entries": entries, "total": total}), flush=True)


if __name__ == "__main__":
    main()
