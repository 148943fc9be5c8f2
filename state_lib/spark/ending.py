"""Stops a query of Spark's, for as long as those who wait for it have patience."""

from __future__ import annotations

import time
from collections.abc import Callable

from py4j.protocol import Py4JJavaError
from pyspark.sql.streaming.query import StreamingQuery

from state_lib.errors import Unavailable

STOP_S, ENDING_S = 120.0, 5.0
"""How long Spark's thread may take to end; and how long if the process is to end, which is killed
after some time."""
_HANGS = "java.util.concurrent.TimeoutException"
"""Spark's thread did not end within the session's ``stopTimeout``."""


def halt(query: StreamingQuery, app: str, patience_s: Callable[[], float]) -> None:
    """Stop a query; each try takes as long as the session says (``stopTimeout``).

    Args:
        query: which.
        app: its application.
        patience_s: how long to try in all. It is asked after each try: it may be less by then.

    Raises:
        Unavailable: Spark's thread hangs.
    """
    began = time.monotonic()
    while True:
        try:
            return query.stop()
        except Py4JJavaError as error:
            hangs = error.java_exception.getClass().getName() == _HANGS
            if hangs and time.monotonic() - began < patience_s():
                continue
            raise Unavailable(
                f"the query of {app!r} does not stop: {error.java_exception}. Is Kafka away? The "
                "stream is started again, unless it was to end"
            ) from error
