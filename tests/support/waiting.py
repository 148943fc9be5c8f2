"""Waiting for what takes a moment: always for a condition, never for a time.

A limit says how long an idle machine may take at most; a slower one is given more (see
.ci/slowness.py).
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")
SLOWNESS = float(os.environ.get("TESTS_SLOWNESS", "1"))


class NotCaughtUp(AssertionError):
    """Right so far and on its way, but not there in time; raised only after a look at where it is.

    The gate runs such a test once more (.ci/gate.py), and no other.
    """


class StandsStill(AssertionError):
    """Right so far, but nothing moved for long, or nobody could be asked; no second try helps."""


def until(true: Callable[[], T | None], timeout_s: float = 60, what: str = "") -> T:
    """Wait until it is so, or something is there; returns that."""
    deadline = deadline_in(timeout_s)
    while not (found := true()):
        assert time.monotonic() < deadline, f"not {what} within {timeout_s * SLOWNESS:.0f} s"
        time.sleep(0.05)
    return found


def deadline_in(seconds: float) -> float:
    """On the monotonic clock."""
    return time.monotonic() + seconds * SLOWNESS
