"""Which code may finish a batch."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from state_lib.changelog.progress import Recorded
from state_lib.driver.versions import Behind, Chain, behind, check_code, cut_off
from state_lib.errors import CodeChanged, ConfigurationError
from state_lib.protocol.marker import Marker

P, Q = ("t", 0), ("t", 1)


def recorded(code: str | None) -> Recorded:
    return Recorded(3, 7, {P: 0}, {P: 10}, 0, 0, code=code)


@pytest.mark.parametrize(
    ("theirs", "accepted"), [("ours", ""), (None, ""), ("theirs", "theirs"), ("ours", "theirs")]
)
def test_its_own_one_of_old_and_one_that_is_accepted(theirs: str | None, accepted: str) -> None:
    check_code("app", recorded(theirs), "ours", "", accepted, [1])


@pytest.mark.parametrize("accepted", ["", "others", "ours"])
def test_other_code_is_refused_by_name(accepted: str) -> None:
    with pytest.raises(CodeChanged) as refused:
        check_code("app", recorded("theirs"), "ours", "", accepted, [1, 2])
    details = refused.value.details
    assert details == {
        "app": "app", "theirs": "theirs", "ours": "ours", "epoch": 3, "batch_number": 7,
        "tasks": [1, 2],
    }  # fmt: skip
    for said in ("batch 7 of epoch 3", "theirs", "ours", "[1, 2]", "HOLDFAST_ACCEPT_NEW_CODE="):
        assert said in refused.value.message
    assert isinstance(refused.value, ConfigurationError), "no restart can help"


def test_what_a_processor_does_may_change_within_a_batch() -> None:
    """It raised on one task: the other has done the batch, and rows stay where they were."""
    theirs = replace(recorded("theirs"), routing="same")
    check_code("app", theirs, "ours", "same", "", [1])
    for routing in ("another", ""):
        with pytest.raises(CodeChanged):
            check_code("app", theirs, "ours", routing, "", [1])
    with pytest.raises(CodeChanged):
        check_code("app", recorded("theirs"), "ours", "same", "", [1])


def test_a_tick_may_be_finished_by_any_code() -> None:
    """No row of it could go to another task."""
    check_code("app", replace(recorded("theirs"), tick=True), "ours", "", "", [1])


def test_ticks_that_a_task_missed_are_to_be_on_record() -> None:
    def at(noted: int, log: str = "log", **published: Any) -> Marker:
        return Marker(recorded=noted, recorded_in=log, published=published)

    assert cut_off([at(7), at(7)], "log", 90) == [], "they slept, and missed nothing"
    assert cut_off([at(7), at(9)], "log", 8) == [], "all that it missed is there"
    assert cut_off([at(7), at(9)], "log", 9) == [0]
    assert cut_off([at(7, recorded=30, recorded_in="log")] * 2, "log", 20) == [0, 1]
    assert cut_off([at(7, recorded=30, recorded_in="old")] * 2, "log", 20) == []
    assert cut_off([at(7, "old"), at(9)], "log", 20) == [], "of an older topic nothing is known"


def test_who_is_behind_and_which_batch_they_have_next() -> None:
    def never() -> list[Recorded]:
        raise AssertionError("nobody is behind: the log is not read")

    unread = Chain(never)
    assert behind([{P: 5, Q: 5}, {P: 5, Q: 5}], unread) is None
    assert behind([{P: 5, Q: 5}, {P: 5}], unread) is None, "a source that is new to one of them"
    assert behind([{}, {P: 5}], unread) is None

    batch = Recorded(3, 7, {P: 2, Q: 0}, {P: 4, Q: 5}, 0, 0)
    after = Recorded(3, 8, {P: 4, Q: 5}, {P: 5, Q: 5}, 0, 0)
    there, least = {P: 5, Q: 5}, {P: 2, Q: 5}
    both, later = Chain(lambda: [batch, after]), Chain(lambda: [after])
    assert behind([there, least, least], both) == Behind(least, [1, 2], batch)
    assert behind([there, {P: 4, Q: 5}, least], later) == Behind(least, [2], None)
    assert behind([there, {P: 4, Q: 5}], both) == Behind({P: 4, Q: 5}, [1], after)


def test_all_are_behind_what_was_published_after_a_restore_to_the_past() -> None:
    here, there = {P: 2, Q: 0}, {P: 4, Q: 5}
    batch = Recorded(3, 7, here, there, 0, 0)
    assert behind([here, here], Chain(lambda: [batch]), [there, here]) == Behind(
        here, [0, 1], batch
    )
    assert behind([there, there], Chain(lambda: [batch]), [there, here]) is None


def test_ticks_come_where_they_came() -> None:
    """Between the batches around them, and each for those that have not taken it."""
    low, high = {P: 4, Q: 5}, {P: 9, Q: 5}
    batch = Recorded(3, 8, low, high, 0, 0, offset=20)
    first, second, last = (
        Recorded(3, n, at, at, n, 0, offset=offset, tick=True)
        for n, at, offset in ((7, low, 10), (8, low, 11), (9, high, 30))
    )
    chain = Chain(lambda: [batch], lambda: [last, first, second])
    taken = [5, 10, 10, 20]
    at = [low, low, low, high]
    assert behind(at, chain, (), taken) == Behind(low, [0], first)
    assert behind(at, chain, (), [10, 10, 10, 20]) == Behind(low, [0, 1, 2], second)
    assert behind(at, chain, (), [11, 11, 11, 20]) == Behind(low, [0, 1, 2], batch)
    assert behind([high] * 2, chain, (), [30, 20]) == Behind(high, [1], last)
    assert behind([high] * 2, chain, (), [30, 30]) is None
    assert behind([high] * 2, chain) is None, "without timers ticks are nothing"
