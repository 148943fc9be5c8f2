"""A job that ends before its driver can say anything: by what it declares, a setting, a signal."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Callable
from datetime import UTC, datetime
from types import TracebackType
from typing import TYPE_CHECKING

import orjson

from state_lib.drivers.identity import Identity
from state_lib.errors import ConfigurationError
from state_lib.exits import EXIT_CONFIGURATION, EXIT_STOPPED, IN_LOG
from state_lib.signals import aside

if TYPE_CHECKING:
    from state_lib.drivers.sight import How

_stops: list[Callable[[], object]] = []
_heard: list[str] = []
Hook = Callable[[type[BaseException], BaseException, TracebackType | None], object]


def tell_refusals(*, hears: bool) -> None:
    """Let an uncaught ConfigurationError be logged, and end the process with `EXIT_CONFIGURATION`.

    Calling it again does nothing.

    Args:
        hears: whether the process is the job's own script. Then a SIGTERM without a handler is a
            stop: the driver, which would stop at a batch's edge, does not exist yet.
    """
    if not isinstance(sys.excepthook, _Refusals):
        sys.excepthook = _Refusals(sys.excepthook)
    in_main = threading.current_thread() is threading.main_thread()
    is_free = signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    if hears and in_main and is_free and not _tries_out():
        signal.signal(signal.SIGTERM, _stopped)


def _tries_out() -> bool:
    """Whether somebody types into this process."""
    return hasattr(sys, "ps1") or "ipykernel" in sys.modules


def on_stop(stop: Callable[[], object]) -> Callable[[], None]:
    """Have a SIGTERM call this instead, also one that came before; returns what ends that."""
    _stops.append(stop)
    if _heard:
        stop()
    return lambda: _stops.remove(stop)


def end_if_stopped() -> None:
    """End now if a signal has asked for it while no stream ran.

    It raises wherever the main thread is by then, and that may be where every exception is taken
    for another thing, as where a library tries to import what it can do without [tried].
    """
    if _heard:
        raise SystemExit(EXIT_STOPPED)


def _stopped(*_: object) -> None:
    for stop in _stops:
        aside(stop)
    if not _stops:
        if not _heard:
            _heard.append("stop")
            _last_words("stopped", "it got a signal to stop while no stream ran")
        end_if_stopped()


class _Refusals:
    """Python's last resort, with the one before it."""

    def __init__(self, before: Hook) -> None:
        self._before = before

    def __call__(
        self, kind: type[BaseException], error: BaseException, trace: TracebackType | None
    ) -> None:
        self._before(kind, error, trace)
        if _tries_out():
            return
        end_if_stopped()  # the error is one that somebody made of `end_if_stopped`'s
        if isinstance(error, ConfigurationError):
            _last_words("failed", error.message)
            raise SystemExit(EXIT_CONFIGURATION)


def _last_words(how: How, why: str) -> None:
    """In the log alone: nothing is known of Kafka.

    By nothing that is imported for it: a signal comes also in the middle of an import, and what is
    there in part fails. Nor by ``sys.stderr``, which cannot be entered twice.
    """
    said = Identity.of_this_process().last_words(how, why, retry=False)
    now = datetime.now(UTC).isoformat()
    line = said | {"event": IN_LOG, "level": "info", "timestamp": now}
    with contextlib.suppress(OSError):  # nobody reads it
        os.write(2, (why.encode() if os.isatty(2) else orjson.dumps(line)) + b"\n")
