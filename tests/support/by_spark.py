"""Spark's own operator: runs a processor over the batches of a test, and reads what it keeps."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, GroupedData, Row, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from tests.support.waiting import SLOWNESS

Batches = Sequence[Sequence[dict[str, Any]]]
Values = dict[Any, tuple[Any, ...]]
_PROVIDER = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
_TTL = "ttlExpirationMs"


@dataclass(frozen=True)
class Ran:
    """A query that has ended: rows by batch, those of batches without data at the end."""

    session: SparkSession
    checkpoint: Path
    rows: list[list[dict[str, Any]]]

    def values(self, state: str) -> Values:
        """A value state by grouping key."""
        return {row.key[0]: _plain(row.value) for row in self._state(stateVarName=state)}

    def lists(self, state: str) -> dict[Any, list[tuple[Any, ...]]]:
        """A list state by grouping key, elements in their order."""
        found: dict[Any, list[tuple[Any, ...]]] = {}
        for row in self._state(stateVarName=state):
            found.setdefault(row.key[0], []).append(_plain(row.list_element))
        return found

    def maps(self, state: str) -> dict[Any, Values]:
        """A map state by grouping key."""
        found: dict[Any, Values] = {}
        for row in self._state(stateVarName=state):
            found.setdefault(row.key[0], {})[tuple(row.user_map_key)] = _plain(row.user_map_value)
        return found

    def timers(self) -> list[tuple[int, Any]]:
        """Timers that have not run, by expiry."""
        rows = self._state(readRegisteredTimers="true")
        return sorted((row.expiration_timestamp_ms, row.key[0]) for row in rows)

    def _state(self, **options: str) -> list[Row]:
        reader = self.session.read.format("statestore").options(**options)
        return reader.load(str(self.checkpoint)).collect()


def ran(
    spark: SparkSession,
    folder: Path,
    schema: str,
    batches: Batches,
    process: Callable[[GroupedData], DataFrame],
    watermark: tuple[str, str] | None = None,
) -> Ran:
    """Run a query with RocksDB on one partition, a batch for each file.

    Args:
        spark: its JVM is used, and none of its settings changed.
        folder: for files and checkpoint.
        schema: of rows; they are grouped by its first column.
        batches: rows as JSON objects.
        process: gives the output.
        watermark: column of times in ms, and the delay. Only with one are there batches without
            data at the end: by processing time they never end.
    """
    source = folder / "in"
    source.mkdir()
    for number, rows in enumerate(batches):
        file = source / f"{number}.json"
        file.write_text("\n".join(json.dumps(row) for row in rows), encoding="utf-8")
        os.utime(file, (number, number))  # Spark reads files in order of time
    session = spark.newSession()
    session.conf.set("spark.sql.streaming.stateStore.providerClass", _PROVIDER)
    session.conf.set("spark.sql.shuffle.partitions", "1")
    session.conf.set("spark.sql.streaming.noDataMicroBatches.enabled", watermark is not None)
    files = session.readStream.schema(schema).option("maxFilesPerTrigger", 1).json(str(source))
    if watermark is not None:
        event_time, delay = watermark
        stamped = files.withColumn("stamp", F.timestamp_millis(event_time))
        files = stamped.withWatermark("stamp", delay)
    told: list[list[dict[str, Any]]] = []
    made = Ran(session, folder / "checkpoint", told)
    query = (
        process(files.groupBy(schema.partition(" ")[0]))
        .writeStream.outputMode("update")
        .option("checkpointLocation", str(made.checkpoint))
        .trigger(availableNow=True)
        .foreachBatch(lambda frame, _: told.append([row.asDict() for row in frame.collect()]))
        .start()
    )
    assert query.awaitTermination(int(120 * SLOWNESS))
    return made


def _plain(row: Row) -> tuple[Any, ...]:
    """A row without the time until which it lives."""
    return tuple(row.value) if _TTL in row.asDict() else tuple(row)
