"""Keeps a stream running: tries it again where that may help, and says how it ended."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass

import structlog
from confluent_kafka import KafkaException
from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors import PySparkException

from state_lib.config import Settings
from state_lib.declaration import Declaration
from state_lib.driver.epochs import Epoch
from state_lib.drivers.last_words import BEGINS
from state_lib.drivers.sight import How
from state_lib.drivers.watched import Watched
from state_lib.errors import (
    ConfigurationError,
    HoldfastError,
    MissingTopic,
    StoreFull,
    Superseded,
    Unauthorized,
)
from state_lib.exits import EXIT_FAILED, EXIT_REFUSED, EXIT_STOPPED, EXIT_SUPERSEDED
from state_lib.refused import end_if_stopped
from state_lib.signals import hear
from state_lib.spark.driver import Driver
from state_lib.spark.opened import Opened

log = structlog.get_logger(__name__)
_EXITS: dict[How, int] = {"stopped": EXIT_STOPPED, "superseded": EXIT_SUPERSEDED}


_here: set[str] = set()
_lock = threading.Lock()


def enter(app_id: str) -> None:
    """Note that an application runs in this process.

    Raises:
        ConfigurationError: it does already: the two would take the application from one another.
    """
    with _lock:
        if app_id in _here:
            raise ConfigurationError(
                f"application {app_id!r} runs already in this process: stop() the query that its "
                "start() has returned, or give this one another id",
                app=app_id,
            )
        _here.add(app_id)


def leave(app_id: str) -> None:
    """It has ended."""
    with _lock:
        _here.discard(app_id)


@dataclass(frozen=True)
class Ended:
    """How and why a stream ended, and whether starting it again could help."""

    how: How
    why: str
    retry: bool = False
    error: BaseException | None = None


def main(app: Declaration, settings: Settings, opened: Opened | None = None) -> None:
    """Run a job's process: signals, restarts, exit codes, one line per failure.

    Raises:
        ConfigurationError: it is not called in the main thread, which signals need; or the
            application runs already in this process.
    """
    from state_lib.logs import configure_logging  # noqa: PLC0415

    if threading.current_thread() is not threading.main_thread():
        raise ConfigurationError(
            f"run() of application {app.id!r} is called in a thread, where no signal is heard: "
            "call it in the main thread, or call start()"
        )
    end_if_stopped()
    enter(app.id)
    configure_logging(settings.log_level)
    watched = Watched.of(app.id, settings) if opened is None else opened.watched()
    hear(watched.stopping.set, signal.SIGTERM, signal.SIGINT)
    try:
        end_if_stopped()  # until now a signal raised, maybe where nobody noticed
        ended = keep_running(app, settings, watched, opened)
    finally:
        leave(app.id)
    sys.exit(_EXITS.get(ended.how, EXIT_FAILED if ended.retry else EXIT_REFUSED))


def keep_running(
    app: Declaration,
    settings: Settings,
    watched: Watched,
    opened: Opened | None = None,
    seen: Callable[[Driver], None] = lambda _: None,
) -> Ended:
    """Run the stream, restart it where that may help, and report the end.

    Args:
        app: as `Driver` takes it.
        settings: as above.
        watched: as above.
        opened: as above; stopped at the end, if it is ours.
        seen: called with the driver of each try.
    """
    log.info(BEGINS, app=app.id, driver=watched.presence.who.id)
    try:
        ended = tried(app, settings, watched, opened, seen)
    except BaseException as error:
        watched.presence.leave("failed", _first_lines(error))
        raise
    finally:
        if opened is not None:
            opened.stop()
    handover = watched.control.handover
    watched.presence.leave(ended.how, ended.why, retry=ended.retry, handover=handover)
    return ended


def tried(
    app: Declaration,
    settings: Settings,
    watched: Watched,
    opened: Opened | None = None,
    seen: Callable[[Driver], None] = lambda _: None,
) -> Ended:
    """As `keep_running`, without reporting the end."""
    stopping, failures = watched.stopping, 0
    epoch: Epoch | None = None
    while not stopping.is_set():
        driver: Driver | None = None
        try:
            driver = Driver(app, settings, watched, epoch, opened)
            seen(driver)
            driver.run()
        except Exception as error:
            if opened is not None and (lost := opened.lost()):
                log.error("the driver ends", why=lost.message, code=lost.code)
                return Ended("failed", lost.message, retry=True, error=lost)
            if ended := _at_once(error, is_to_end=stopping.is_set()):
                return ended
            if not isinstance(error, _AGAIN):
                raise
            failures = 1 if driver is not None and driver.committed else failures + 1
            log.error("the stream failed", why=_first_lines(error), failures=failures)
            if failures > settings.max_restarts and not stopping.is_set():
                return Ended("failed", _first_lines(error), retry=True, error=error)
            stopping.wait(min(2.0**failures, 30.0) * 0.5)
        else:
            stopping.set()
        epoch = epoch if driver is None else driver.epoch
    how, why = watched.control.ending
    return Ended(how, why)


_AGAIN = (HoldfastError, KafkaException, PySparkException, Py4JError, ConnectionError)


def _at_once(error: Exception, *, is_to_end: bool) -> Ended | None:
    """How it ends by an error that another try in this process does not mend."""
    match error:
        case Superseded():
            log.error("the driver ends", why=error.message, code=error.code)
            return Ended("superseded", error.message, error=error)
        case ConfigurationError() | StoreFull() | Unauthorized():
            log.error("the driver ends", why=error.message, code=error.code)
            retry = isinstance(error, MissingTopic)
            return Ended("failed", error.message, retry=retry, error=error)
        case Py4JJavaError():  # an error of Spark: the JVM lives
            return None
        case Py4JError() | ConnectionError():
            log.error("the JVM is gone", why=_first_lines(error))
            if not is_to_end:  # else it ended because its last batch was cancelled
                why = f"the JVM is gone: {_first_lines(error)}"
                return Ended("failed", why, retry=True, error=error)
    return None


def _first_lines(error: BaseException, lines: int = 12) -> str:
    """Of its message, or the name of its class, if it has none."""
    return "\n".join(str(error).strip().splitlines()[:lines]) or type(error).__name__
