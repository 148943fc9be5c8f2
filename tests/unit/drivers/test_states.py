"""What a stream does, and what is to be done, by one look at it."""

from __future__ import annotations

from dataclasses import replace

from state_lib.checks.conditions import driver_stalled
from state_lib.cli._reason import Reason, reason
from state_lib.drivers.sight import DriverFacts, Ended, Sight, Stop
from state_lib.drivers.states import last_end, state_of

FAILED = Sight(
    at=0,
    epoch=7,
    driver="ours",
    facts=DriverFacts("ours", "here", 42, "/log", 7, 0, restarts=2),
    ended=(Ended("ours", "failed", "no disk", restarts=2),),
)


def test_a_stream_that_is_stopped_between_two_starts_of_its_driver_is_stopped() -> None:
    assert state_of(FAILED) == "failed"
    assert "its supervisor starts it again" in (reason("app", FAILED).next_step or "")
    stopped = replace(FAILED, stop_asked=Stop(9, "a person"))
    assert state_of(stopped) == "stopped"
    assert last_end(stopped) == Ended(
        "ours", "stopped", "a person; its driver had failed: no disk", retry=False, restarts=2
    )
    assert reason("app", stopped) == Reason(
        "a person; its driver had failed: no disk",
        "nothing starts it again by itself: start the job of app",
    )
    assert [*driver_stalled("app", FAILED, None)]
    assert not [*driver_stalled("app", stopped, None)], "the alarm is over"


def test_what_was_asked_of_an_earlier_driver_or_is_a_handover_stops_no_stream() -> None:
    earlier = replace(FAILED, stop_asked=Stop(5, "a person"))
    handover = replace(FAILED, handover_asked=Stop(9, "cleared"))
    assert [state_of(earlier), state_of(handover)] == ["failed", "failed"]
