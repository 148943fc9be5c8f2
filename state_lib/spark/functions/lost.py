"""Tells of a function that ends its worker: no row can be told from the others then."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

from state_lib.declaration import Declaration
from state_lib.errors import FunctionFailed

_LOST = "Python worker exited unexpectedly"


@contextmanager
def explained(app: Declaration) -> Iterator[None]:
    """Let Spark run something of an application.

    Raises:
        FunctionFailed: a worker has ended, each time that Spark tried; naming the steps that call
            Python functions, and the topics whose records are decoded in Python.
    """
    try:
        yield
    except (Py4JJavaError, PySparkException) as error:
        calls = dict.fromkeys(f"{call.at}: {call.name!r}" for call in app.calls)
        sources = (verb.source for verb in app.verbs)
        topics = dict.fromkeys(f"topic {s.topic!r}, in Avro" for s in sources if s.format == "avro")
        if not (calls or topics) or _LOST not in str(error):
            raise
        raise FunctionFailed(
            f"a Python worker of application {app.id!r} ended while it ran a batch, and did so "
            "again each time that Spark tried. A function that ends its process (by os._exit, a "
            "crash in a library, or for want of memory) cannot be made a dead letter of its row. "
            "Nothing of the batch is committed; look into the executor's log. Python runs for:\n  "
            + "\n  ".join((*calls, *topics)),
            app=app.id,
        ) from error
