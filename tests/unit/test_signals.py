"""Signals are heard wherever the main thread is."""

from __future__ import annotations

import signal
import threading
from typing import Any

from state_lib.signals import hear


def test_a_signal_is_heard_while_the_main_thread_holds_the_lock_of_what_it_sets() -> None:
    """As it does for a moment in each `Event.wait`: set in the handler itself, both would hang."""
    event: Any = threading.Event()
    before = signal.getsignal(signal.SIGUSR1)
    hear(event.set, signal.SIGUSR1)
    try:
        with event._cond:
            signal.raise_signal(signal.SIGUSR1)
            assert not event.is_set()
        assert event.wait(20)
    finally:
        signal.signal(signal.SIGUSR1, before)
