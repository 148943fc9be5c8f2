"""Brokers for fixtures."""

from __future__ import annotations

import os
import signal
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from state_lib.errors import Unavailable
from state_lib.stack.broker import LocalBroker


class FlakyStart(UserWarning):
    """The gate's report names it, though the tests pass (.ci/reports.py)."""


@contextmanager
def running_broker(folder: Path, **given: Any) -> Iterator[LocalBroker]:
    """A broker that runs; one that does not come up is tried once more, elsewhere and anew."""
    try:
        broker = LocalBroker(folder, **given).start()
    except Unavailable as error:
        warnings.warn(FlakyStart(f"a broker did not start: {error.message}"), stacklevel=2)
        broker = LocalBroker(folder.with_name(f"{folder.name}-again"), **given).start()
    try:
        yield broker
    finally:
        broker.stop()


@contextmanager
def paused(broker: LocalBroker) -> Iterator[None]:
    """SIGSTOP for the time of the block: connections stay open and nobody answers."""
    pid = broker.pid
    assert pid is not None, "a broker that does not run cannot be paused"
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)
