"""Markers and the verdict on a commit."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from state_lib.errors import Realign, Superseded
from state_lib.protocol.marker import (
    RESTORING,
    CommitHeader,
    Marker,
    Verdict,
    advance,
    is_muted,
    judge,
)
from state_lib.protocol.positions import Positions
from tests.support.drawn import places


def s(*offsets: int) -> Positions:
    """Of the partitions of source s, from 0 on."""
    return Positions({("s", p): offset for p, offset in enumerate(offsets)})


HERE, THERE = s(10, 5), s(20, 5)
MARKER = Marker(epoch=7, batch_number=3, owner="host-1", positions=HERE, stream_time_ms=1000)


def header(epoch: int = 7, n: int = 4, **more: object) -> CommitHeader:
    given_ = {"from_": HERE, "to": THERE, "stream_time_ms": 2000} | more
    return CommitHeader(epoch=epoch, batch_number=n, **given_)  # type: ignore[arg-type]


def test_the_next_batch_is_applied() -> None:
    assert judge(MARKER, header()) is Verdict.APPLY


def test_a_gap_is_applied_if_it_starts_here() -> None:
    assert judge(MARKER, header(n=9)) is Verdict.APPLY


@pytest.mark.parametrize("n", [3, 2, 0])
def test_what_is_done_is_done_wherever_it_started(n: int) -> None:
    assert judge(MARKER, header(n=n, from_=s(1), read_at=(7, 1))) is Verdict.ALREADY_DONE


def test_an_older_epoch_is_superseded_even_if_its_number_is_done() -> None:
    for n in (1, 3, 4):
        with pytest.raises(Superseded) as refused:
            judge(MARKER, header(epoch=6, n=n))
        assert refused.value.details["marker"]["epoch"] == 7
        assert refused.value.details["commit"]["epoch"] == 6


def test_an_epoch_that_never_claimed_must_claim() -> None:
    with pytest.raises(Realign, match="claim"):
        judge(MARKER, header(epoch=8, n=1))


@pytest.mark.parametrize(
    "elsewhere", [s(11, 5), s(10), Positions(), Positions({**HERE, ("t", 0): 0})]
)
def test_another_start_must_align(elsewhere: Positions) -> None:
    with pytest.raises(Realign) as refused:
        judge(MARKER, header(from_=elsewhere))
    assert refused.value.details["marker"]["positions"] == HERE.to_json()
    assert refused.value.details["commit"]["from"] == elsewhere.to_json()


@pytest.mark.parametrize("read_at", [(7, 2), (6, 3)])
def test_values_read_before_the_marker_moved_are_stale(read_at: tuple[int, int]) -> None:
    with pytest.raises(Realign, match="moved"):
        judge(MARKER, header(read_at=read_at))
    assert judge(MARKER, header(read_at=(7, 3))) is Verdict.APPLY


def test_advance_moves_and_accumulates() -> None:
    before = Marker(
        epoch=7, batch_number=3, positions=HERE, stream_time_ms=3000, maxima=s(9, 9),
        dropped={"late": 2}, topic_ids={"s": "id-s"}, state="restoring", logs={"c": "id-c"},
    )  # fmt: skip
    said = header(maxima=s(12, 4), dropped={"late": 1, "null-key": 5})
    after = advance(before, said, "host-2", {"c": [8, 2]})
    assert (after.epoch, after.batch_number, after.owner) == (7, 4, "host-2")
    assert after.positions == THERE
    assert after.maxima == s(12, 9)
    assert after.dropped == {"late": 3, "null-key": 5}
    assert after.stream_time_ms == 3000, "time never goes back"
    assert after.published == {"positions": THERE.to_json(), "clock": 2000}
    assert after.cut == {"c": [8, 2]}
    assert after.topic_ids == {"s": "id-s"}
    assert after.state == "running"
    assert after.logs == {"c": "id-c"}
    assert before.dropped == {"late": 2}, "markers are values"


def test_claims_keep_the_place() -> None:
    after = MARKER.claimed_by(9, "host-2")
    assert (after.epoch, after.batch_number, after.owner, after.positions) == (9, 0, "host-2", HERE)
    owned = MARKER.owned_by("host-3", {"c": "id-c"})
    assert (owned.positions, owned.batch_number, owned.logs) == (HERE, 3, {"c": "id-c"})
    assert owned.claimed_by(9, "host-2").logs == {"c": "id-c"}


@given(places(), st.integers(-1, 1 << 62), st.text())
def test_markers_survive_their_bytes(positions: Positions, clock: int, owner: str) -> None:
    marker = Marker(
        epoch=3,
        batch_number=2,
        owner=owner,
        positions=positions,
        stream_time_ms=clock,
        cut={"c": [1, 2]},
    )
    assert Marker.from_bytes(marker.to_bytes()) == marker
    assert Marker.from_json(marker.to_json()) == marker


def test_fields_of_newer_versions_are_ignored() -> None:
    raw = orjson.loads(MARKER.to_bytes()) | {"invented_later": 1}
    assert Marker.from_bytes(orjson.dumps(raw)) == MARKER
    said = orjson.loads(orjson.dumps(header(read_at=(7, 3)).to_json())) | {"invented_later": 1}
    assert CommitHeader.from_json(said) == header(read_at=(7, 3))


BACK = replace(MARKER, published={"positions": s(30, 9).to_json(), "clock": 5000})


@pytest.mark.parametrize(
    ("from_", "to", "muted"),
    [
        (HERE, s(20, 5), True),
        (HERE, s(30, 9), True),
        (HERE, HERE, False),
        (s(30, 9), s(31, 9), False),
        (s(30, 5), s(30, 9), True),
        (s(30, 5), s(30, 10), None),
        (HERE, s(31, 5), None),
        (HERE, s(20, 10), None),
        (Positions({**HERE, ("t", 0): 7}), Positions({**THERE, ("t", 0): 7}), True),
        (Positions(), HERE, True),
    ],
)
def test_outputs_up_to_what_was_published_are_muted(from_: Any, to: Any, muted: Any) -> None:
    commit = header(from_=from_, to=to)
    again = replace(BACK, published={**BACK.published, "again": True})
    if muted is None:
        for marker in (BACK, again):
            with pytest.raises(Realign, match="recorded"):
                is_muted(marker, commit)
        return
    assert is_muted(BACK, commit) is muted
    assert is_muted(again, commit) is False
    assert is_muted(MARKER, commit) is False, "one that was never restored"


def test_what_was_published_stays_until_it_is_reached() -> None:
    reached = BACK
    for to in (s(20, 5), s(30, 5)):
        reached = advance(reached, header(from_=reached.positions, to=to), "host-1", {})
        assert reached.published == BACK.published
        assert reached.published_to == s(30, 9)
    last = header(from_=reached.positions, to=s(30, 9))
    assert advance(reached, last, "host-1", {}).published["clock"] == 2000


def test_a_restore_to_the_past_is_no_claim() -> None:
    assert MARKER.claim == 7
    begun = replace(MARKER, epoch=9, state=RESTORING, back={"before": 7})
    assert begun.claim == 7
    ended = replace(begun, state="running", rewound=9)
    assert ended.claim == 7
    assert ended.claimed_by(12, "host-1").claim == 12
    assert Marker().claim == -1


def test_ticks_whose_outputs_were_written_are_muted() -> None:
    """They cover no position: their records tell them apart."""
    told = {**BACK.published, "recorded": 40}
    marker = replace(BACK, published=told)

    def tick(recorded: int) -> CommitHeader:
        return header(from_=HERE, to=HERE, recorded=recorded)

    assert [is_muted(marker, tick(at)) for at in (-1, 39, 40, 41)] == [False, True, True, False]
    again = replace(marker, published={**told, "again": True})
    assert not is_muted(again, tick(39))
    end = s(30, 9)
    last = header(to=end, recorded=35)
    assert advance(marker, last, "host-1", {}).published["recorded"] == 40
    assert advance(again, last, "host-1", {}).published["recorded"] == 35
    assert "recorded" not in advance(BACK, header(to=end), "host-1", {}).published


def test_a_progress_topic_that_was_made_anew_mutes_nothing() -> None:
    """Its offsets begin at 0 again: those of the old one say nothing of its records."""
    old = replace(
        MARKER,
        recorded=5000,
        recorded_in="old",
        published={"positions": HERE.to_json(), "clock": 9, "recorded": 5000, "recorded_in": "old"},
    )
    assert [old.taken(log) for log in ("old", "new", "")] == [5000, -1, -1]

    def tick(recorded: int, log: str) -> CommitHeader:
        return header(from_=HERE, to=HERE, recorded=recorded, recorded_in=log)

    assert is_muted(old, tick(5000, "old"))
    assert not is_muted(old, tick(1, "new"))
    new = advance(old, tick(1, "new"), "host-1", {})
    assert (new.recorded, new.recorded_in) == (1, "new")
    assert new.published["recorded"] == 1
    assert new.published["recorded_in"] == "new"
    assert is_muted(new, tick(1, "new"))
    assert not is_muted(new, tick(2, "new"))
    kept = advance(old, header(from_=HERE, to=HERE), "host-1", {})
    assert (kept.recorded, kept.recorded_in) == (5000, "old"), "a commit that is on no record"
    assert kept.published["recorded_in"] == "old"


def test_a_progress_topic_that_lost_its_end_mutes_nothing() -> None:
    told = {"positions": HERE.to_json(), "clock": 9, "recorded": 5000, "recorded_in": "log"}
    marker = replace(MARKER, recorded=5000, recorded_in="log", published=told)
    begun = header(from_=HERE, to=HERE, recorded=4800, recorded_in="log")
    after = advance(marker, begun, "host-1", {})
    assert (after.recorded, after.published["recorded"]) == (4800, 4800)


def test_a_restore_to_the_past_keeps_up_to_which_record_outputs_were_written() -> None:
    marker = replace(MARKER, recorded=7, recorded_in="log")
    assert marker.outputs_recorded == {"recorded": 7, "recorded_in": "log"}
    there = {"positions": HERE.to_json(), "clock": 9, "recorded": 40, "recorded_in": "log"}
    assert replace(marker, published=there).outputs_recorded["recorded"] == 40
    elsewhere = {**there, "recorded": 5, "recorded_in": "newer"}
    found = replace(marker, published=elsewhere).outputs_recorded
    assert found == {"recorded": 5, "recorded_in": "newer"}, "the snapshot was of the older one"
    assert replace(MARKER, recorded=7).outputs_recorded == {"recorded": 7}, "as without processors"
    assert MARKER.outputs_recorded == {}


def test_batch_time_never_goes_back_and_what_is_due_is_the_last_word() -> None:
    first = advance(MARKER, header(batch_time_ms=9, due={"eventtime": 5}), "host-1", {})
    assert (first.batch_time_ms, first.due) == (9, {"eventtime": 5})
    second = advance(first, header(n=5, batch_time_ms=7), "host-1", {})
    assert (second.batch_time_ms, second.due) == (9, {"eventtime": 5})
    third = advance(second, header(n=6, due={}, overdue=True), "host-1", {})
    assert (third.due, third.overdue) == ({}, True)
    assert advance(third, header(n=7), "host-1", {}).overdue, "a commit that runs no processor"
    assert not advance(third, header(n=7, due={}), "host-1", {}).overdue
    assert Marker.from_bytes(first.to_bytes()) == first
