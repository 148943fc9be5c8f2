"""What a signal sets off: Python runs its handler between any two steps of the main thread."""

from __future__ import annotations

import _thread
import signal
from collections.abc import Callable
from types import FrameType


def hear(act: Callable[[], object], *numbers: signal.Signals) -> None:
    """Have signals call ``act``, as `aside` does. Only the main thread may call this."""

    def heard(_number: int, _frame: FrameType | None) -> None:
        aside(act)

    for number in numbers:
        signal.signal(number, heard)


def aside(act: Callable[[], object]) -> None:
    """Call it in a thread, out of a handler.

    The main thread may hold the very lock that it takes, as that of an `Event` for which it is
    about to wait: in the main thread it would wait for itself. Not by `threading.Thread`: to start
    one takes a lock, too.
    """
    _thread.start_new_thread(act, ())
