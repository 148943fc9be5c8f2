"""What tasks answer for a batch, and what the driver's log says of it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import orjson
from structlog.testing import capture_logs

from state_lib.driver.outcome import noted
from state_lib.driver.standing import Standing
from state_lib.executor.exchange import Raised
from state_lib.executor.plan import BatchPlan
from state_lib.protocol.marker import Marker
from state_lib.protocol.positions import Positions


def answer(task: int, raised: Raised | None = None) -> Any:
    said = None if raised is None else orjson.dumps(raised)
    return SimpleNamespace(task=task, marker=Marker().to_bytes(), error=None, raised=said)


def test_what_functions_raised_is_one_line_for_each_step_of_a_batch() -> None:
    plan = BatchPlan(1, 5, Positions(), Positions(), 0, 0, 0, {})
    later: Raised = {"failed:s.x": (3, "later"), "raised:p": (1, "KeyError: 1")}
    answers = [answer(1, later), answer(2), answer(0, {"failed:s.x": (2, "ValueError: no")})]
    with capture_logs() as lines:
        assert noted(answers, plan, Standing(1, [Marker()] * 3, {}), 3) == {}
    assert [(one["step"], one["records"], one["first"], one["batch"]) for one in lines] == [
        ("s.x", 5, "ValueError: no", 5),
        ("p", 1, "KeyError: 1", 5),
    ]
    with capture_logs() as lines:
        noted([answer(0)], plan, Standing(1, [Marker()], {}), 1)
    assert lines == []
