"""Asking again while somebody is away."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import stamina

from state_lib.errors import Unavailable

T = TypeVar("T")


def never() -> bool:
    """Nobody stops it."""
    return False


def patiently(ask: Callable[[], T], patience_s: float, stopped: Callable[[], bool] = never) -> T:
    """Ask; where that is Unavailable, ask again for so long, or until ``stopped`` says so."""
    for attempt in stamina.retry_context(
        on=lambda error: isinstance(error, Unavailable) and not stopped(),
        attempts=None,
        timeout=patience_s,
        wait_max=5.0,
    ):
        with attempt:
            return ask()
    raise AssertionError  # not reached: the last attempt raises its own error
