"""The session in which an application is declared and run: a user's, or one of its own."""

from __future__ import annotations

import contextlib
import importlib
import sys
from typing import TYPE_CHECKING

from state_lib.errors import HoldfastError, Unavailable
from state_lib.spark import jvm

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from state_lib.config import Settings
    from state_lib.drivers.early import Early
    from state_lib.drivers.watched import Watched

# Nothing here may import PySpark at module level: the JVM starts meanwhile. (docs/adr/0017)


class Opened:
    """Opens a session when it is needed, and again where ours was stopped.

    Args:
        app_id: of the application.
        given: a user's session. Its settings stay as they are: what Holdfast needs is set in a
            session beside it, of the same JVM. It is never stopped, and nor is one that is there
            already where none is given.
        settings: of this process; read where they are not given.
        runs: whether this process is the job's own, and will run it: then Kafka is spoken to as
            well while the JVM starts.

    Raises:
        ConfigurationError: a setting is wrong, or the user's session speaks to a remote server.
    """

    def __init__(
        self,
        app_id: str,
        given: SparkSession | None = None,
        settings: Settings | None = None,
        *,
        runs: bool = False,
    ) -> None:
        self._id, self._given, self._settings = app_id, given, settings
        self._early: Early | None = None
        self._session: SparkSession | None = None
        self._is_ours = False
        self._starting: jvm.Starting | None = None
        if given is not None:
            from state_lib.spark.given import beside  # noqa: PLC0415 - see above

            self._session = beside(given)
            return
        if not _has_jvm():  # else PySpark uses the present one
            with contextlib.suppress(HoldfastError):  # PySpark starts one itself, or raises
                self._starting = jvm.start(app_id, self.settings)
                if runs:
                    self._early = _early(app_id, self.settings)
        # It takes a second, while the JVM starts: an application is mostly run once declared.
        importlib.import_module("state_lib.spark.driver")

    @property
    def settings(self) -> Settings:
        """Of this process."""
        if self._settings is None:
            from state_lib.config import Settings  # noqa: PLC0415 - heavy

            self._settings = Settings.load()
        return self._settings

    def watched(self) -> Watched:
        """A run's connection to the outside: a new one for each.

        Raises:
            ConfigurationError: a file that a setting names cannot be read.
        """
        from state_lib.drivers.watched import Watched  # noqa: PLC0415 - see above

        early, self._early = self._early, None
        return Watched.of(self._id, self.settings) if early is None else early.watched()

    def session(self, settings: Settings | None = None) -> SparkSession:
        """The session.

        Raises:
            ConfigurationError: the settings are none for a driver.
            Unavailable: the user's session was stopped. A new process would make another.
        """
        from state_lib.spark.given import beside  # noqa: PLC0415 - see above

        if (present := self.present) is not None:
            return present
        if lost := self.lost():
            raise lost
        if self._starting is not None:
            # Loaded early: PySpark uses it in its first call with a list, and it imports pandas.
            importlib.import_module("pyspark.testing.utils")
            self._starting.join()
        there = _there()
        if there is not None:
            self._session, self._is_ours = beside(there), False
        else:
            from state_lib.spark.session import open_session  # noqa: PLC0415 - see above

            self._session, self._is_ours = open_session(self._id, settings or self.settings), True
        jvm.joined()
        return self._session

    @property
    def present(self) -> SparkSession | None:
        """The session, if it is open."""
        from state_lib.spark.given import is_alive  # noqa: PLC0415 - see above

        return self._session if self._session is not None and is_alive(self._session) else None

    def lost(self) -> Unavailable | None:
        """What to raise if the session was a user's, and has been stopped."""
        from state_lib.spark.given import is_alive  # noqa: PLC0415 - see above

        if self._given is None or is_alive(self._given):
            return None
        return Unavailable(
            f"the session that application {self._id!r} was given has been stopped: make another, "
            "and declare the application in it",
            app=self._id,
        )

    def ready(self, settings: Settings | None = None) -> SparkSession:
        """The session, checked for a stream, and without an earlier query.

        Raises:
            ConfigurationError: as `session`; a setting of the user's JVM does not fit.
            Unavailable: as `session`; an earlier query in a user's session does not stop.
        """
        from state_lib.spark.given import check_runs  # noqa: PLC0415 - see above

        session = self.session(settings)
        if not self._is_ours:
            check_runs(session)
        try:
            self._stop_queries(session)
        except Unavailable:
            if not self._is_ours:
                raise
            self.stop()
            return self.session(settings)
        return session

    def stop(self) -> None:
        """Stop it; of a user's, only our queries. Again: nothing."""
        if self._session is None:
            return
        from py4j.protocol import Py4JError  # noqa: PLC0415 - see above

        with contextlib.suppress(Py4JError, ConnectionError, Unavailable):  # the JVM may be gone
            if self._is_ours:
                self._session.stop()
            elif not self.lost():
                self._stop_queries(self._session)

    def close(self) -> None:
        """End a JVM that nobody has joined."""
        if self._starting is not None:
            self._starting.close()

    def _stop_queries(self, session: SparkSession) -> None:
        """All of the session beside the user's are ours."""
        from state_lib.spark.ending import ENDING_S, halt  # noqa: PLC0415 - see above

        for query in session.streams.active:
            halt(query, self._id, lambda: ENDING_S)


def _early(app_id: str, settings: Settings) -> Early:
    from state_lib.drivers.early import Early  # noqa: PLC0415 - see above

    return Early(app_id, settings)


def _has_jvm() -> bool:
    if "pyspark" not in sys.modules:
        return False
    from pyspark import SparkContext  # noqa: PLC0415 - it is imported already

    return SparkContext._gateway is not None  # noqa: SLF001 - there is no other way


def _there() -> SparkSession | None:
    """A session of somebody else's in this process."""
    from pyspark.sql import SparkSession  # noqa: PLC0415 - see above

    from state_lib.spark.given import is_alive  # noqa: PLC0415 - see above

    found = SparkSession._instantiatedSession  # noqa: SLF001 - as the builder looks for it
    return found if found is not None and is_alive(found) else None
