"""Tells of a function that ends its worker, or does not end: no row can be told from the others."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import structlog
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

from state_lib.declaration import Declaration
from state_lib.errors import WorkerLost

log = structlog.get_logger(__name__)
_LOST = "Python worker exited unexpectedly"


@contextmanager
def explained(app: Declaration, within_s: float | None = None) -> Iterator[None]:
    """Let Spark run something of an application.

    Args:
        app: the application.
        within_s: where it takes longer, a warning is logged that names its functions.

    Raises:
        WorkerLost: a worker has ended, each time that Spark tried; it names them as well, and the
            topics whose records are decoded in Python.
    """
    steps = _steps(app)
    timer = threading.Timer(within_s or 0, _tell, (app.id, within_s, steps))
    timer.daemon = True
    if within_s is not None and steps:
        timer.start()
    try:
        yield
    except (Py4JJavaError, PySparkException) as error:
        if _LOST not in str(error):
            raise
        raise WorkerLost(
            f"a Python worker of application {app.id!r} ended while it ran a batch, and did so "
            "each time that Spark tried. Nothing of the batch is committed; it is tried again. "
            "Maybe a function ends its process (by os._exit, a crash in a library, or for want of "
            "memory), which cannot be made a dead letter of its row; maybe the machine did. Look "
            "into the executor's log. "
            + (f"Python runs for:\n  {steps}" if steps else "No function of the job runs there."),
            app=app.id,
        ) from error
    finally:
        timer.cancel()


def _steps(app: Declaration) -> str:
    """All that calls Python functions, by line."""
    steps = [f"{call.at}: {call.name!r}" for call in app.calls]
    kinds = [("processor" if v.processor.fold is None else "store", v.name) for v in app.processes]
    steps += [f"{kind} {name!r}" for kind, name in kinds]
    sources = (verb.source for verb in app.verbs)
    steps += [f"topic {source.topic!r}, in Avro" for source in sources if source.format == "avro"]
    return "\n  ".join(dict.fromkeys(steps))


def _tell(app: str, within_s: float, steps: str) -> None:
    log.warning(
        "a batch takes long; a function that does not end would stop the stream",
        app=app,
        longer_than_s=within_s,
        functions=steps,
    )
