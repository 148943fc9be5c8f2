"""What the store of ``word_count`` must hold: recomputed with Spark, nothing of state_lib."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from jobs._recompute import Batch, counted, digest, judged, letters


def recompute(spark: SparkSession, rows: DataFrame, batches: Iterable[Batch]) -> dict[str, Any]:
    """Counts of every word, and what could not be read."""
    line = F.col("value").cast("string")
    seen = judged(spark, rows, batches).withColumn("line", line)
    readable = F.col("value").isNotNull() & F.is_valid_utf8("line")
    broken = F.when(~readable, "undecodable")
    seen = seen.withColumn("bad", F.coalesce("bad", broken)).persist()
    words = F.explode(F.regexp_extract_all(F.lower("line"), F.lit("([a-z]+)")))
    counts = (
        seen.where("bad IS NULL")
        .select("ts", words.alias("key"))
        .groupBy("key")
        .agg(F.max("ts").alias("timestamp"), F.count("*").alias("value"))
        .toArrow()
        .to_pylist()
    )
    bad = letters(seen)
    seen.unpersist()
    return {
        "stores": {"counts": counts},
        "digests": {
            "counts": digest(
                (r["key"].encode(), struct.pack(">qq", r["timestamp"], r["value"])) for r in counts
            )
        },
        "dropped": counted(reason for *_, reason in bad),
        "dead_letters": bad,
        "rising": {"word-counts": ["count"]},
    }
