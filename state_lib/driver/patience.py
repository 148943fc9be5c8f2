"""Retries while a service is away."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import stamina

from state_lib.errors import Unavailable

T = TypeVar("T")


def never() -> bool:
    """Never stop: a default."""
    return False


def patiently(ask: Callable[[], T], patience_s: float, stopped: Callable[[], bool] = never) -> T:
    """Call ``ask``; retry on Unavailable for ``patience_s`` or until ``stopped`` returns True."""
    for attempt in stamina.retry_context(
        on=lambda error: isinstance(error, Unavailable) and not stopped(),
        attempts=None,
        timeout=patience_s,
        wait_max=5.0,
    ):
        with attempt:
            return ask()
    raise AssertionError  # not reached: the last attempt raises its own error
