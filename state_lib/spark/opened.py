"""The session in which an application is declared and run: a user's, or one of its own."""

from __future__ import annotations

import contextlib
import importlib
from typing import TYPE_CHECKING

from py4j.protocol import Py4JError
from pyspark import SparkContext

from state_lib.errors import ConfigurationError, HoldfastError
from state_lib.spark import jvm
from state_lib.spark.properties import REQUIRED

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from state_lib.config import Settings

_OF_SQL = "spark.sql."


class Opened:
    """Opens a session when it is needed, and again where it was stopped.

    Args:
        app_id: of the application.
        given: a user's session. Its settings stay as they are: what Holdfast needs is set in a
            session beside it, of the same JVM.
        settings: of this process; read where they are not given.

    Raises:
        ConfigurationError: a setting is wrong, or the user's session speaks to a remote server.
    """

    def __init__(
        self, app_id: str, given: SparkSession | None = None, settings: Settings | None = None
    ) -> None:
        self._id, self._own, self._settings = app_id, given is None, settings
        self._session: SparkSession | None = None
        self._starting: jvm.Starting | None = None
        if given is not None:
            self._session = _beside(given)
            return
        if SparkContext._gateway is None:  # noqa: SLF001 - PySpark takes the JVM that it has
            with contextlib.suppress(HoldfastError):  # PySpark starts one, or it says what is wrong
                self._starting = jvm.start(app_id, self.settings)
        # A second, beside the JVM's: whoever declares an application is about to run it.
        importlib.import_module("state_lib.spark.driver")

    @property
    def settings(self) -> Settings:
        """Of this process."""
        if self._settings is None:
            from state_lib.config import Settings  # noqa: PLC0415 - heavy

            self._settings = Settings.load()
        return self._settings

    def session(self, settings: Settings | None = None) -> SparkSession:
        """The session.

        Raises:
            ConfigurationError: the settings are none for a driver; the user's session was stopped.
        """
        if self._session is not None and _is_alive(self._session):
            return self._session
        if not self._own:
            raise ConfigurationError(
                f"the session that application {self._id!r} was given has been stopped: make "
                "another, and declare the application in it"
            )
        from state_lib.spark.session import open_session  # noqa: PLC0415 - beside the JVM's start

        if self._starting is not None:
            # PySpark asks it about NumPy in its first call that has a list, and it imports pandas.
            importlib.import_module("pyspark.testing.utils")
            self._starting.join()
        self._session = open_session(self._id, settings or self.settings)
        return self._session

    def stop(self) -> None:
        """Stop it; a user's stays. Again: nothing."""
        if self._own and self._session is not None:
            with contextlib.suppress(Py4JError, ConnectionError):  # the JVM may be gone
                self._session.stop()

    def close(self) -> None:
        """End a JVM that nobody has joined."""
        if self._starting is not None:
            self._starting.close()


def _beside(given: SparkSession) -> SparkSession:
    if not hasattr(given, "_jsparkSession"):
        raise ConfigurationError(
            "the session speaks to a remote Spark by Spark Connect, and a driver needs its JVM: "
            "run where Spark's driver runs, with SparkSession.builder.master(...)"
        )
    if given.sparkContext.getConf().get("spark.python.worker.reuse", "true") != "true":
        raise ConfigurationError(
            "Spark's setting spark.python.worker.reuse is 'false' and must be 'true': remove what "
            "sets it"
        )
    session = given.newSession()
    for key, value in REQUIRED.items():
        if key.startswith(_OF_SQL):
            session.conf.set(key, value)
    return session


def _is_alive(session: SparkSession) -> bool:
    context = session.sparkContext._jsc  # noqa: SLF001 - None once it is stopped
    try:
        return context is not None and not context.sc().isStopped()
    except (Py4JError, ConnectionError):
        return False
