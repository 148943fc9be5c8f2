"""A driver's life, sight by sight."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from state_lib.drivers.events import Event
from state_lib.drivers.sight import DriverFacts, Ended, Sight, Stop
from state_lib.drivers.supervision import Supervision

OURS = "ours"
CLAIMED = Sight(
    at=0,
    drivers=(OURS,),
    epoch=7,
    driver=OURS,
    facts=DriverFacts(OURS, "here", 42, "/log", 7, 0),
    total=1000,
)


class Life:
    """Feeds sights, one a second, through JSON each time."""

    def __init__(self, max_restarts: int = 3) -> None:
        self.now = 1000.0
        self.supervision = Supervision("app", OURS, self.now, max_restarts)
        self.said = ["last line"]

    def see(self, sight: Sight, *, process: bool | None = True, seconds: float = 1) -> list[Event]:
        self.now += seconds
        stored = json.dumps(self.supervision.to_json())
        self.supervision = Supervision.from_json(json.loads(stored))
        return self.supervision.feed(sight, process=process, now=self.now, said=self.said)

    def due(self) -> bool:
        return self.supervision.due

    def names(self, sight: Sight, *, process: bool | None = True, seconds: float = 1) -> list[str]:
        return [e.name for e in self.see(sight, process=process, seconds=seconds)]


def test_an_adopted_driver_says_how_often_one_was_started_before_it() -> None:
    life = Life()
    assert CLAIMED.facts is not None
    life.see(replace(CLAIMED, facts=replace(CLAIMED.facts, restarts=4)))
    assert life.supervision.restarts == 4


def test_a_good_life() -> None:
    life = Life()
    assert life.names(Sight(at=0)) == []
    assert life.names(CLAIMED) == ["started"]
    assert life.names(replace(CLAIMED, batch_number=1)) == [], "only positions"
    assert life.names(replace(CLAIMED, batch_number=1, done=1)) == ["committing"]
    assert life.names(replace(CLAIMED, batch_number=2, done=500), seconds=5) == []
    (told,) = life.see(replace(CLAIMED, batch_number=3, done=900), seconds=5)
    assert told.name == "progress"
    assert told.text.startswith("app: 900 of 1,000 records, 82/s, lag 100")
    ended = Ended(OURS, "stopped", "asked to", retry=False)
    assert life.names(replace(CLAIMED, batch_number=3, ended=(ended,))) == []
    (end,) = life.see(replace(CLAIMED, batch_number=3, ended=(ended,)), process=False)
    assert (end.name, end.text) == ("stopped", "the driver of app has stopped: asked to")
    assert life.names(replace(CLAIMED, batch_number=3), process=False) == []
    assert life.supervision.over


def test_since_when_it_commits_is_told_only_if_it_was_seen_to_commit_nothing() -> None:
    commits = replace(CLAIMED, batch_number=5, done=900)
    for before in (Sight(at=0), CLAIMED):
        life = Life()
        life.see(before)
        told = life.see(commits)[-1]
        assert told.text == "app commits, 2 s after its driver was launched"
        assert told.details == {"epoch": 7, "seconds": 2.0}
    again = Life()  # as a triggerer that starts again has it from the task: all is new
    told = again.see(commits, seconds=48)[-1]
    assert (told.name, told.text, told.details) == ("committing", "app commits", {"epoch": 7})


def test_a_crash_is_one_crash_and_one_restart() -> None:
    life = Life()
    life.see(CLAIMED)
    (crash,) = life.see(CLAIMED, process=False)
    assert crash.name == "crashed"
    assert crash.details["restart_in_s"] == 1
    assert "last line" in crash.text
    assert life.names(CLAIMED, process=False) == ["restart"]
    assert life.due()
    assert life.names(CLAIMED, process=False, seconds=100) == []
    life.supervision.launched("next", life.now)
    assert not life.due()
    assert life.names(CLAIMED) == []
    next_one = replace(CLAIMED, driver="next", epoch=8, batch_number=2)
    assert life.names(next_one) == ["started", "committing"]


def test_gives_up_after_failures_in_a_row_and_counts_anew_after_a_commit() -> None:
    life = Life(max_restarts=3)
    waits = []
    sight = CLAIMED
    for attempt in range(4):
        life.see(sight)
        (crash, *more) = life.see(sight, process=False)
        if more:
            assert [e.name for e in more] == ["gave_up"]
            assert "last line" in more[0].text
            break
        waits.append(crash.details["restart_in_s"])
        assert life.names(sight, process=False, seconds=60) == ["restart"]
        life.supervision.launched(f"d{attempt}", life.now)
        sight = replace(CLAIMED, driver=f"d{attempt}", epoch=8 + attempt)
    assert waits == [1, 2, 4]
    assert life.supervision.over

    life = Life(max_restarts=1)
    life.see(CLAIMED)
    assert life.names(CLAIMED, process=False) == ["crashed"]
    assert life.names(CLAIMED, process=False, seconds=5) == ["restart"]
    life.supervision.launched("d", life.now)
    assert life.names(replace(CLAIMED, driver="d", epoch=9, batch_number=4)) == [
        "started",
        "committing",
    ]
    (crash,) = life.see(replace(CLAIMED, driver="d", epoch=9, batch_number=4), process=False)
    assert crash.details["restart_in_s"] == 1


def test_what_cannot_be_mended_is_not_tried_again() -> None:
    life = Life()
    life.see(CLAIMED)
    ended = Ended(OURS, "failed", "wrong token", retry=False)
    crash, gave_up = life.see(replace(CLAIMED, ended=(ended,)), process=False)
    assert (crash.name, gave_up.name) == ("crashed", "gave_up")
    assert "wrong token" in gave_up.text


def test_a_driver_that_fails_while_it_hands_over_is_followed_by_a_new_one() -> None:
    ended = Ended(OURS, "failed", "no disk", retry=False)
    life = Life()
    life.see(CLAIMED)
    asked = replace(CLAIMED, ended=(ended,), handover_asked=Stop(9, "cleared"))
    (restart,) = life.see(asked, process=False)
    assert restart.name == "restart"
    assert restart.text.startswith("the driver of app has failed: no disk. That ends a driver")
    life.supervision.launched("next", life.now, asked)
    theirs = Ended("next", "failed", "no disk still", retry=False)
    again = replace(asked, driver="next", epoch=10, ended=(ended, theirs))
    assert life.names(again, process=False) == ["started", "crashed", "gave_up"]

    life = Life()
    life.see(CLAIMED)
    stopped = replace(asked, stop_asked=Stop(8, "a person"))
    assert life.names(stopped, process=False) == ["crashed", "gave_up"], "it is told"


def test_another_driver_ends_supervision() -> None:
    life = Life()
    life.see(CLAIMED)
    (event,) = life.see(replace(CLAIMED, driver="theirs", epoch=9))
    assert event.name == "superseded"

    life = Life()
    life.see(CLAIMED)
    life.see(CLAIMED, process=False)
    theirs = replace(CLAIMED, driver="theirs", epoch=9)
    assert life.names(theirs, process=False) == ["superseded"], "while it waits to restart"

    life = Life()
    earlier = replace(CLAIMED, driver="earlier", epoch=3)
    assert life.names(earlier) == [], "the claim before ours, while ours is starting"
    assert life.names(replace(earlier, epoch=4, driver="rival")) == [], "ours will claim after it"
    assert life.names(CLAIMED) == ["started"]


def test_a_stop_is_no_crash() -> None:
    life = Life()
    life.see(CLAIMED)
    asked = replace(CLAIMED, stop_asked=Stop(9, "a person"))
    assert life.names(asked) == []
    (end,) = life.see(asked, process=False)
    assert (end.name, end.text) == ("stopped", "app was asked to stop: a person")

    life = Life()
    life.see(CLAIMED)
    life.see(CLAIMED, process=False)
    assert life.names(asked, process=False) == ["stopped"], "while it waits to restart"

    life = Life()
    old = replace(CLAIMED, driver="earlier", epoch=3, stop_asked=Stop(4, "long ago"))
    assert life.names(old) == []
    assert life.names(old, process=False) == ["crashed"], "that request was meant for another"


def test_a_stop_before_its_claim_is_not_lost_with_a_driver_that_was_killed() -> None:
    """Nor one that the driver before it has heeded taken for one."""
    for launched_at, told in ((4, "stopped"), (6, "crashed")):
        life = Life()
        before = Sight(at=0, stop_asked=None if launched_at == 4 else Stop(5, "a person"))
        life.supervision.launched(OURS, life.now, before)
        sight = replace(CLAIMED, stop_asked=Stop(5, "a person"))
        assert life.names(sight) == ["started"]
        assert life.names(sight, process=False) == [told]


def test_a_stop_of_before_is_none_for_a_driver_that_was_found_while_kafka_was_away() -> None:
    life = Life()
    life.supervision.launched(OURS, life.now, Sight(at=0, away="no brokers"))
    sight = replace(CLAIMED, stop_asked=Stop(4, "last month"))
    assert life.names(sight) == ["started"]
    assert life.names(sight, process=False) == ["crashed"]


def test_a_stop_of_before_may_be_meant_for_the_stream_of_a_driver_that_is_found() -> None:
    """Whoever finds it knows; also if it claims only then, and is killed."""
    stop = Stop(5, "a person")
    for meant, ending, told in ((stop, 5, "stopped"), (None, 5, "restart"), (None, -1, "crashed")):
        life = Life()
        found = Sight(at=0, drivers=(OURS,), stop_asked=stop)
        life.supervision.launched(OURS, life.now, found, ending=ending, stop=meant)
        sight = replace(CLAIMED, stop_asked=stop)
        assert life.names(sight) == ["started"]
        assert life.names(sight, process=False) == [told]


def test_a_stop_before_its_claim_is_none_if_a_handover_comes_after_it() -> None:
    life = Life()
    sight = replace(CLAIMED, stop_asked=Stop(4, "long ago"), handover_asked=Stop(9, "cleared"))
    assert life.names(sight) == ["started"]
    assert life.names(sight, process=False) == ["restart"]


def test_a_handover_is_followed_by_a_new_driver_and_no_failure() -> None:
    asked, gone = "app was asked to stop: cleared", "the driver of app has stopped: cleared"
    for request, end, why in (
        (Stop(9, "cleared"), None, asked),
        (Stop(9, "cleared"), Ended(OURS, "stopped", "cleared"), gone),
        (None, Ended(OURS, "stopped", "cleared", handover=True), gone),
    ):
        life = Life()
        life.see(CLAIMED)
        ended = () if end is None else (end,)
        sight = replace(CLAIMED, handover_asked=request, ended=ended)
        (event,) = life.see(sight, process=False)
        assert (event.name, event.details) == ("restart", {"failures": 0})
        assert event.text == f"{why}. That ends a driver and not the stream; starting a new one"
        assert life.supervision.stop_asked(sight) is None, "nobody else takes it for a stop"


def test_a_stop_counts_whatever_handover_is_asked_for_beside_it() -> None:
    handed = Ended(OURS, "stopped", "cleared", handover=True)
    for ended in ((), (handed,), (Ended(OURS, "stopped", "a person"),)):
        for stop, handover in ((9, 10), (10, 9)):
            life = Life()
            life.see(CLAIMED)
            asked = (Stop(stop, "a person"), Stop(handover, "cleared"))
            sight = replace(CLAIMED, stop_asked=asked[0], handover_asked=asked[1], ended=ended)
            assert life.supervision.stop_asked(sight) == asked[0]
            (event,) = life.see(sight, process=False)
            assert event.name == "stopped"
            assert event.text.endswith("cleared" if ended == (handed,) else "a person")


def test_an_adopted_drivers_end_for_a_stop_of_before_is_no_end_of_the_stream() -> None:
    for newest, told in ((9, "restart"), (10, "stopped")):
        life = Life()
        life.supervision.requests.ending = 9
        life.see(CLAIMED)
        asked = Stop(newest, "a person")
        sight = replace(CLAIMED, stop_asked=asked, ended=(Ended(OURS, "stopped", "a person"),))
        assert life.names(sight, process=False) == [told]


def test_kafka_away_is_one_alarm_and_no_crash() -> None:
    life = Life()
    life.see(CLAIMED)
    away = replace(CLAIMED, away="no brokers")
    assert life.names(away) == ["kafka_away"]
    assert [life.names(away) for _ in range(200)] == [[]] * 200
    assert life.names(replace(CLAIMED, drivers=())) == ["kafka_back"]
    assert life.names(CLAIMED) == []
    assert life.names(replace(away, drivers=()), process=False) == ["kafka_away"]
    assert life.names(CLAIMED, process=False) == ["kafka_back", "crashed"]


def test_a_driver_elsewhere_is_judged_by_its_group() -> None:
    life = Life()
    absent = replace(CLAIMED, drivers=())
    assert life.names(Sight(at=0), process=None, seconds=100) == []
    assert life.names(CLAIMED, process=None) == ["started"]
    assert life.names(absent, process=None) == []
    assert life.names(CLAIMED, process=None) == [], "a rebalance"
    assert life.names(absent, process=None) == []
    assert life.names(absent, process=None, seconds=4) == ["crashed"]

    life = Life()
    assert life.names(Sight(at=0), process=None, seconds=200) == ["crashed"], "it never joined"

    life = Life()
    life.supervision.launched(OURS, life.now, Sight(at=0, drivers=(OURS,)))
    assert life.names(Sight(at=0), process=None) == []
    assert life.names(Sight(at=0), process=None, seconds=4) == ["crashed"], "it was found joined"


def test_a_launch_that_fails_is_a_failure_with_a_pause() -> None:
    life = Life(max_restarts=3)
    life.see(CLAIMED)
    life.see(replace(CLAIMED, batch_number=2, done=9))
    life.see(CLAIMED, process=False)
    assert life.names(CLAIMED, process=False) == ["restart"]
    for failures, pause in ((2, 2.0), (3, 4.0)):
        failed = life.supervision.not_launched("no master", life.now)
        assert (failed.name, failed.details["restart_in_s"]) == ("crashed", pause)
        assert failed.text.endswith(
            f"could not be launched (failure {failures} in a row): no master"
        )
        assert life.names(CLAIMED, process=False, seconds=pause - 1) == []
        assert life.names(CLAIMED, process=False) == ["restart"]
    last = life.supervision.not_launched("no master", life.now)
    assert (last.name, life.supervision.over) == ("gave_up", True)


def test_what_was_said_after_the_look_before_a_launch_is_meant_for_it() -> None:
    life = Life()
    old = replace(CLAIMED, driver="old", stop_asked=Stop(8, "before"))
    life.supervision.launched("next", life.now, old)
    assert life.supervision.stop_asked(old) is None
    asked = replace(old, stop_asked=Stop(9, "now"))
    assert life.supervision.stop_asked(asked) == asked.stop_asked
    assert life.names(asked) == [], "it lives, and hears it"
    assert life.names(asked, process=False) == ["stopped"]


@pytest.mark.parametrize(
    "line",
    [
        json.dumps({"event": "last words", "id": OURS, "how": "failed", "why": "a typo",
                    "retry": False, "handover": False, "restarts": 0}),
        "SyntaxError: a typo",
    ],
)  # fmt: skip
def test_one_that_is_refused_before_it_could_claim_is_given_up(line: str) -> None:
    """There is no topic yet in which it could say so."""
    life = Life()
    life.said = ["starting", line, "Exception in thread main: exited with 4"]
    nothing = Sight(at=0)
    life.see(nothing)
    (end,) = [e for e in life.see(nothing, process=False, seconds=60) if e.name != "crashed"]
    assert end.name == "gave_up"
    assert "a typo" in end.text


def test_the_last_words_of_another_driver_do_not_count() -> None:
    life = Life()
    said = {"event": "last words", "id": "theirs", "how": "failed", "why": "x", "retry": False}
    life.said = [json.dumps(said), "last words of no JSON"]
    life.see(Sight(at=0))
    assert life.names(Sight(at=0), process=False, seconds=60) == ["crashed"]


def test_a_job_that_did_not_compile_is_not_the_one_that_began_after_it() -> None:
    """A log is appended to: the one of now was killed, and a restart may help."""
    life = Life()
    life.said = ["SyntaxError: a typo", json.dumps({"event": "starting", "driver": OURS})]
    life.see(Sight(at=0))
    assert life.names(Sight(at=0), process=False, seconds=60) == ["crashed"]
