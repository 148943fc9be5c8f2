"""What the chaos job's stores must hold: recomputed with Spark, nothing of state_lib."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from jobs._recompute import Batch, counted, digest, json_fields, judged, letters, packed

HOUR_MS, GRACE_MS = 3_600_000, 1_800_000


def recompute(spark: SparkSession, rows: DataFrame, batches: Iterable[Batch]) -> dict[str, Any]:
    """Totals of every key, counts of its hours, and what could not be read or came too late."""
    seen = json_fields(judged(spark, rows, batches), {"k": "STRING", "x": "BIGINT!"})
    start = F.col("ts") - F.pmod(F.col("ts"), F.lit(HOUR_MS))
    seen = seen.withColumn("start", start).drop("key", "value", "timestamp")
    seen = seen.withColumn("late", F.col("start") + HOUR_MS + GRACE_MS <= F.col("clock")).persist()
    good = seen.where("bad IS NULL")
    keyed = good.where("k IS NOT NULL")
    newest = F.struct("ts", F.col("src").cast("long").alias("src"), "offset", "x")
    totals = _rows(
        keyed.groupBy(F.col("k").alias("key"))
        .agg(F.max(newest).alias("z"), F.count("*").alias("n"), F.sum("x").alias("total"))
        .selectExpr(
            "key",
            "z.ts AS timestamp",
            "z.ts AS _last_ts",
            "z.src AS _last_src",
            "z.offset AS _last_offset",
            "n",
            "total",
            "z.x AS seen",
        )
    )
    hourly = _rows(
        keyed.where("NOT late")
        .groupBy(F.col("k").alias("key"), "start")
        .agg(F.max("ts").alias("timestamp"), F.count("*").alias("value"))
    )
    late, nulls = keyed.where("late").count(), good.where("k IS NULL").count()
    bad = letters(seen)
    seen.unpersist()
    stamp = struct.Struct(">q").pack
    return {
        "stores": {"totals": totals, "hourly": hourly},
        "digests": {
            "totals": digest(
                (r["key"].encode(), stamp(r["timestamp"]) + packed([*r.values()][2:]))
                for r in totals
            ),
            "hourly": digest(
                (
                    r["key"].encode() + struct.pack(">qi", r["start"], 0),
                    stamp(r["timestamp"]) + stamp(r["value"]),
                )
                for r in hourly
            ),
        },
        "dropped": counted(reason for *_, reason in bad)
        | {"late:hourly": late, "null-key:totals": nulls, "null-key:hourly": nulls},
        "dead_letters": bad,
        "rising": {"soak-out": ["n"]},
    }


def _rows(frame: DataFrame) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = frame.toArrow().to_pylist()
    return rows
