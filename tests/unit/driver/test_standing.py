"""When timers are due, and what comes before the next rows."""

from __future__ import annotations

from state_lib.driver.standing import Standing
from state_lib.protocol.marker import Marker


def test_wall_time_that_leapt_and_came_back_does_not_hold_timers_up() -> None:
    """They run by the greatest time of any batch, and so does the look for them."""
    leapt = Marker(batch_time_ms=9_000, due={"processingtime": 8_000})
    standing = Standing(1, [leapt, Marker()], {})
    assert standing.is_due(0, 1_000)
    later = Marker(batch_time_ms=9_000, due={"processingtime": 9_001})
    assert not Standing(1, [later], {}).is_due(9_001, 1_000)
    assert Standing(1, [later], {}).is_due(0, 9_001)
