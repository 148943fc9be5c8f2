"""An application that runs beside the program that started it, by `StreamingQuery`'s words."""

from __future__ import annotations

import contextlib
import threading
from typing import Any

import structlog
from py4j.protocol import Py4JError
from pyspark.sql.streaming.query import StreamingQuery

from state_lib.declaration import Declaration
from state_lib.errors import HoldfastError, Unavailable
from state_lib.logs import configure_logging
from state_lib.refused import end_if_stopped, on_stop
from state_lib.spark.driver import Driver
from state_lib.spark.ending import ENDING_S
from state_lib.spark.opened import Opened
from state_lib.spark.running import Ended, enter, keep_running, leave

_GONE = (Py4JError, ConnectionError, AttributeError)
"""What PySpark raises of a query whose session was stopped."""


class RunningApplication:
    """A driver in a thread. It ends when the program does.

    A stream that fails is started again in the same session, as often as ``max_restarts`` says;
    Spark's query is another one then.

    Args:
        app: what was declared.
        opened: the session in which it was.

    Raises:
        ConfigurationError: the application runs already in this process; a setting is wrong, or
            the session cannot run a stream.
        Unavailable: the session was stopped.
    """

    def __init__(self, app: Declaration, opened: Opened) -> None:
        self._app, self._opened, self._settings = app, opened, opened.settings
        app.topology  # noqa: B018 - refuses one without a store
        end_if_stopped()
        self._driver: Driver | None = None
        self._query: StreamingQuery | None = None
        self._ended: Ended | None = None
        self._over = threading.Event()
        enter(app.id)
        try:
            opened.ready()
            if not structlog.is_configured():
                configure_logging(self._settings.log_level)
            self._watched = opened.watched()
            name = f"holdfast-{app.id}"
            threading.Thread(target=self._run, name=name, daemon=True).start()
        except BaseException:
            leave(app.id)
            raise

    @property
    def id(self) -> str:
        """The driver's, as ``holdfast drivers`` shows it."""
        return self._watched.presence.who.id

    @property
    def name(self) -> str:
        """The application's id."""
        return self._app.id

    @property
    def isActive(self) -> bool:  # noqa: N802 - Spark's
        """Whether it has not ended. It may be starting, or between two tries."""
        return not self._over.is_set()

    @property
    def lastProgress(self) -> Any:  # noqa: N802 - Spark's
        """Spark's newest progress of the stream; None before the first."""
        query = self._seen()
        with contextlib.suppress(*_GONE):
            return None if query is None else query.lastProgress
        return None

    @property
    def recentProgress(self) -> list[Any]:  # noqa: N802 - Spark's
        """Spark's progresses of the present query."""
        query = self._seen()
        with contextlib.suppress(*_GONE):
            return [] if query is None else [*query.recentProgress]
        return []

    def exception(self) -> BaseException | None:
        """What it ended by; None while it runs, and where it was stopped."""
        return None if self._ended is None else self._ended.error

    def awaitTermination(self, timeout: float | None = None) -> bool | None:  # noqa: N802 - Spark's
        """Wait until it has ended.

        Args:
            timeout: for how long (s); None: without limit.

        Returns:
            With a timeout, whether it has ended.

        Raises:
            HoldfastError: it failed, or another driver has taken over (Superseded). Other errors
                are raised as they were.
        """
        over = self._over.wait(timeout)
        if (error := self.exception()) is not None:
            raise error
        return None if timeout is None else over

    def stop(self) -> None:
        """Stop it at a batch's edge, and wait for that. Again: nothing.

        Raises:
            Unavailable: it does not stop within ``stop_timeout_s`` and some seconds.
        """
        self._watched.stopping.set()
        patience = self._settings.stop_timeout_s + 4 * ENDING_S  # its jobs are cancelled before
        if not self._over.wait(patience):
            raise Unavailable(
                f"application {self._app.id!r} does not stop within {patience:.0f} s: is Kafka "
                "away? It ends as soon as its batch does",
                app=self._app.id,
            )

    # ------------------------------------------------------------------ inside

    def _seen(self) -> StreamingQuery | None:
        """Spark's query; the last one until there is a new one."""
        driver = self._driver
        self._query = (None if driver is None else driver.query) or self._query
        return self._query

    def _note(self, driver: Driver) -> None:
        self._driver = driver

    def _run(self) -> None:
        ended = on_stop(self._watched.stopping.set)
        try:
            self._ended = keep_running(
                self._app, self._settings, self._watched, self._opened, self._note
            )
        except BaseException as error:  # noqa: BLE001 - told to whoever asks for it
            why = error.message if isinstance(error, HoldfastError) else str(error)
            self._ended = Ended("failed", why, retry=True, error=error)
        finally:
            ended()
            leave(self._app.id)
            self._over.set()
