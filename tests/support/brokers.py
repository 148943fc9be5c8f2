"""Brokers for fixtures."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from state_lib.errors import Unavailable
from state_lib.stack.broker import LocalBroker


@contextmanager
def running_broker(folder: Path, **given: Any) -> Iterator[LocalBroker]:
    """A broker that runs; one that does not come up is tried once more, elsewhere and anew."""
    try:
        broker = LocalBroker(folder, **given).start()
    except Unavailable as error:
        print(f"FLAKY: a broker did not start: {error.message}")  # noqa: T201 - for the report
        broker = LocalBroker(folder.with_name(f"{folder.name}-again"), **given).start()
    try:
        yield broker
    finally:
        broker.stop()
