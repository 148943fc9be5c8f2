"""Spark's Python daemon (``spark.python.daemon.module``), with what our tasks import already there.

Spark's own daemon forks workers that import everything by themselves: a second of CPU for each, in
the first batch of all times. Here workers are forked with the modules in memory.

Spark imports late because a fork beside running threads may copy a lock that nobody unlocks. None
of what is imported here starts one, which `tests/unit/executor/test_worker_daemon.py` holds.
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
    "pandas",  # of which Arrow asks whether a list is one of its series
)
THREADS = {
    "OPENBLAS_NUM_THREADS": "1",  # NumPy's
    "JE_ARROW_MALLOC_CONF": "background_thread:false",  # Arrow's allocator
}
"""Variables without which an import would start threads at once."""


def prefer_installed(path: list[str]) -> list[str]:
    """A search path without the copy of PySpark that lies in the installed one.

    Spark puts it first, and it is a ZIP file of sources: compiled anew by each process, in 0.7 s.
    """
    found = PathFinder.find_spec("pyspark", [one for one in path if not one.endswith(".zip")])
    if found is None or found.origin is None:
        return path
    copies = Path(found.origin).parent / "python" / "lib"
    return [one for one in path if not Path(one).is_relative_to(copies)]


def prepare() -> None:
    """Import what tasks need, and leave it where workers share it."""
    for library, setting in THREADS.items():
        os.environ.setdefault(library, setting)
    for name in MODULES:
        importlib.import_module(name)
    gc.collect()
    gc.freeze()  # a collection in a worker would touch, and so copy, all of it


def main() -> None:
    """Be the daemon."""
    sys.path[:] = prefer_installed(sys.path)
    prepare()
    from pyspark.daemon import manager  # noqa: PLC0415 - which is in the path only now

    manager()


if __name__ == "__main__":
    main()
