"""Logging: readable lines in a terminal, JSON elsewhere."""

from __future__ import annotations

import logging
import sys

import structlog


def configure_logging(level: str = "INFO") -> None:
    """Set up structlog for this process. Times are UTC, ISO 8601.

    Loggers are not cached: a later configuration holds for loggers that were used before, too.
    """
    renderer: structlog.types.Processor = (
        structlog.dev.ConsoleRenderer()
        if sys.stderr.isatty()
        else structlog.processors.JSONRenderer()
    )
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelNamesMapping()[level]),
        logger_factory=Stderr,
        cache_logger_on_first_use=False,
    )


class Stderr:
    """Writes to what ``sys.stderr`` is at that moment: loggers outlive a redirection."""

    def __init__(self, *_: object) -> None:
        pass

    def msg(self, message: str) -> None:
        """Write a line."""
        print(message, file=sys.stderr, flush=True)  # noqa: T201 - this is the log

    debug = info = warning = error = critical = exception = log = msg
