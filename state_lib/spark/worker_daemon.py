"""Spark's Python daemon (``spark.python.daemon.module``), with what our tasks import already there.

Spark's own daemon forks workers that import everything by themselves: a second of CPU for each, in
the first batch of all times. Here workers are forked with the modules in memory.

Spark imports late because a fork beside running threads may copy a lock that nobody unlocks. None
of what is imported here starts one, which `tests/unit/spark/test_worker_daemon.py` holds.
"""

from __future__ import annotations

import gc
import importlib
import os

MODULES = (
    "pyspark.worker",
    "pyspark.sql.pandas.types",
    "pyarrow.flight",
    "pyarrow.compute",
    "state_lib.spark.exchange",
)


def prepare() -> None:
    """Import what tasks need, and leave it where workers share it."""
    os.environ.setdefault(
        "OPENBLAS_NUM_THREADS", "1"
    )  # NumPy would start threads as it is imported
    for name in MODULES:
        importlib.import_module(name)
    gc.collect()
    gc.freeze()  # a collection in a worker would touch, and so copy, all of it


def main() -> None:
    """Be the daemon."""
    from pyspark.daemon import manager  # noqa: PLC0415 - not for those who only import `prepare`

    prepare()
    manager()


if __name__ == "__main__":
    main()
