"""A stream that is stopped once it has read all there is."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from state_lib.config import Settings
from state_lib.drivers.control import ask_to_stop
from state_lib.drivers.look import Looker
from state_lib.drivers.sight import Sight
from state_lib.kafka import Kafka
from tests.support.waiting import deadline_in

PATIENCE_S = 200.0


@contextmanager
def stopped_when_caught_up(settings: Settings, app: str) -> Iterator[list[Sight]]:
    """Beside the test: waits until the stream has caught up, then asks its driver to stop."""
    seen: list[Sight] = []

    def follow() -> None:
        looker = Looker(settings, app)
        deadline = deadline_in(PATIENCE_S)
        while time.monotonic() < deadline:
            seen.append(looker.look())
            if seen[-1].batch_number > 0 and seen[-1].total > 0 and seen[-1].lag == 0:
                break
            time.sleep(0.5)
        looker.close()
        ask_to_stop(Kafka.of(settings), app, why="the test has seen enough")

    thread = threading.Thread(target=follow)
    thread.start()
    yield seen
    thread.join()
