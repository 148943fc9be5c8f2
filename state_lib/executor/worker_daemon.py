"""Spark's Python daemon (``spark.python.daemon.module``), with modules of our tasks preloaded.

Spark's own daemon forks workers that import everything by themselves: a second of CPU for each,
just in the first batch. Here workers are forked with the modules in memory.

Spark imports late because a fork beside running threads may copy a locked lock. The modules that
are imported here start no threads, which `tests/unit/executor/test_worker_daemon.py` checks.
"""

from __future__ import annotations

import gc
import importlib
import os
import sys
from importlib.machinery import PathFinder
from pathlib import Path

MODULES = (
    "pyspark.worker",
    "pyspark.sql.pandas.types",
    "pyarrow.flight",
    "pyarrow.compute",
    "state_lib.executor.exchange",
    "pandas",  # Arrow checks whether a list is one of its series
)
THREADS = {
    "OPENBLAS_NUM_THREADS": "1",  # NumPy's
    "JE_ARROW_MALLOC_CONF": "background_thread:false",  # Arrow's allocator
}
"""Variables without which imports would start threads."""


def prefer_installed(path: list[str]) -> list[str]:
    """The search path without the ZIP file of PySpark's sources in the installed package.

    Spark puts it first, and each process would compile it again, in 0.7 s.
    """
    found = PathFinder.find_spec("pyspark", [one for one in path if not one.endswith(".zip")])
    if found is None or found.origin is None:
        return path
    copies = Path(found.origin).parent / "python" / "lib"
    return [one for one in path if not Path(one).is_relative_to(copies)]


def prepare() -> None:
    """Import the modules that tasks need, in memory that workers share."""
    for library, setting in THREADS.items():
        os.environ.setdefault(library, setting)
    for name in MODULES:
        importlib.import_module(name)
    gc.collect()
    gc.freeze()  # else a collection in a worker would touch, and so copy, all pages


def main() -> None:
    """Run the daemon."""
    sys.path[:] = prefer_installed(sys.path)
    prepare()
    from pyspark.daemon import manager  # noqa: PLC0415 - which is in the path only now

    manager()


if __name__ == "__main__":
    main()
