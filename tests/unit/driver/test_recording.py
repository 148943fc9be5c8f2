"""What a driver does if it cannot tell what is on record."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from state_lib.driver.recording import Recording
from state_lib.driver.standing import Standing
from state_lib.errors import Realign, Unavailable
from state_lib.executor.plan import BatchPlan
from state_lib.protocol.marker import Marker
from state_lib.protocol.positions import Positions


def test_a_tick_that_may_be_on_record_is_looked_for() -> None:
    """Nobody would take it: a task that is restored to the past would, alone."""

    def append(_: object) -> int:
        raise Unavailable("the brokers do not answer")

    nobody: Any = None
    progress: Any = SimpleNamespace(append=append)
    standing = Standing(1, [Marker()], {})
    recording = Recording("app", progress, nobody, standing, 0.1, counts=False)
    batch = BatchPlan(1, 2, Positions(), Positions(), 0, 1000, 10, {})
    with pytest.raises(Unavailable):
        recording.put(batch)
    tick = BatchPlan(1, 2, Positions(), Positions(), 0, 1000, 10, {}, tick=True)
    with pytest.raises(Realign, match="may be on record or not: the brokers do not answer"):
        recording.put(tick)
