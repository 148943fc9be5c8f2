"""Timers that are overdue come before the next rows."""

from __future__ import annotations

from dataclasses import replace

import pytest

from state_lib.driver.standing import Standing
from state_lib.driver.ticking import Ticking
from state_lib.errors import Unavailable
from state_lib.executor.plan import BatchPlan
from state_lib.protocol.marker import Marker
from state_lib.protocol.positions import Positions

PLAN = BatchPlan(1, 2, Positions(), Positions(), 0, 1000, 10, {})


def ticking(ran: list[BatchPlan], *, overdue: bool) -> Ticking:
    standing = Standing(1, [Marker(overdue=overdue)], {})
    noted = iter(range(9))

    def run(plan: BatchPlan) -> None:
        ran.append(plan)
        standing.markers[0] = Marker(recorded=plan.recorded)

    return Ticking(standing, 1, lambda plan: replace(plan, recorded=next(noted)), run)


def test_a_stop_does_not_let_rows_come_first() -> None:
    ran: list[BatchPlan] = []
    one = ticking(ran, overdue=True)
    with pytest.raises(Unavailable, match="the next driver does both"):
        one.drain(lambda: PLAN, lambda: True)
    assert not ran
    one.drain(lambda: PLAN, lambda: False)
    assert [plan.tick for plan in ran] == [True]
    one.drain(lambda: PLAN, lambda: True)
    assert len(ran) == 1, "nothing is overdue any more"
