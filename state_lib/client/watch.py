"""Whether a host still answers while somebody waits for it.

A host that is stopped or hangs keeps its connections, and what was asked of it is waited for until
its time is over. One that is slow answers whoever asks for nothing else.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import closing
from typing import Protocol, Self

LOOK_S = 1.0
_LEAST_S = 0.5
"""What the last look may take."""


class Asked(Protocol):
    """A connection to a host, of its own: the other one is busy."""

    def answers(self, timeout_s: float) -> bool:
        """Whether it answers at all in that time."""
        ...

    def close(self) -> None:
        """Drop the connection."""
        ...


class Watch:
    """Ends a wait once the host that is waited for has answered nobody for a while.

    Args:
        host: that is waited for.
        silent_s: how long it may be silent.
        end: ends the wait; called from another thread, once.
    """

    def __init__(self, host: Asked, silent_s: float, end: Callable[[], None]) -> None:
        self._host, self._silent_s, self._end = host, silent_s, end
        self._over = threading.Event()
        self._lock = threading.Lock()
        self.is_silent = False
        """Whether it has ended the wait."""

    def __enter__(self) -> Self:
        """Look from now on."""
        threading.Thread(target=self._look, name="watch", daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._over.set()

    def _look(self) -> None:
        heard_at = time.monotonic()
        with closing(self._host):
            while not self._over.wait(min(LOOK_S, self._silent_s / 2)):
                left_s = heard_at + self._silent_s - time.monotonic()
                if self._host.answers(max(left_s, _LEAST_S)):
                    heard_at = time.monotonic()
                elif time.monotonic() - heard_at >= self._silent_s:
                    break
        with self._lock:  # end it only once
            if not self._over.is_set():
                self.is_silent = True
                self._end()
