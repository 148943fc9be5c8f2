"""Spark's Python workers come from our daemon, with everything imported."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator

import psutil
import pyarrow as pa
from pyspark.sql import SparkSession

from state_lib.executor.worker_daemon import MODULES
from state_lib.submit import DAEMON

FOUND = "found string"


def test_workers_have_all_that_tasks_import(spark: SparkSession) -> None:
    def look(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        list(batches)
        parent = psutil.Process().parent()
        there = all(name in sys.modules for name in MODULES)
        found = " ".join([*(parent.cmdline() if parent else ()), str(there)])
        yield pa.record_batch([[found]], names=["found"])

    (row,) = spark.range(1, numPartitions=1).mapInArrow(look, FOUND).collect()
    assert DAEMON in row.found
    assert row.found.endswith(" True")
