"""A job that ends before its driver can say anything: by what it declares, or by a setting."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import TracebackType

from state_lib.errors import ConfigurationError
from state_lib.exits import EXIT_CONFIGURATION

Hook = Callable[[type[BaseException], BaseException, TracebackType | None], object]


def tell_refusals() -> None:
    """Have this process say last words, and end with `EXIT_CONFIGURATION`, where it is refused.

    That is for a ConfigurationError that nobody catches. Again: nothing.
    """
    if not isinstance(sys.excepthook, _Refusals):
        sys.excepthook = _Refusals(sys.excepthook)


class _Refusals:
    """Python's last resort, with the one before it."""

    def __init__(self, before: Hook) -> None:
        self._before = before

    def __call__(
        self, kind: type[BaseException], error: BaseException, trace: TracebackType | None
    ) -> None:
        self._before(kind, error, trace)
        if isinstance(error, ConfigurationError) and not hasattr(sys, "ps1"):  # somebody tries out
            _last_words(error.message)
            raise SystemExit(EXIT_CONFIGURATION)


def _last_words(why: str) -> None:
    """In the log alone: nothing is known of Kafka."""
    # Whoever declares a job needs none of these.
    import structlog  # noqa: PLC0415

    from state_lib.drivers.identity import Identity  # noqa: PLC0415
    from state_lib.drivers.last_words import IN_LOG  # noqa: PLC0415
    from state_lib.logs import configure_logging  # noqa: PLC0415

    configure_logging()
    who, words = Identity.of_this_process(), {"how": "failed", "why": why, "retry": False}
    structlog.get_logger(__name__).info(IN_LOG, id=who.id, restarts=who.restarts, **words)
