"""For how long conditions hold."""

from __future__ import annotations

from state_lib.checks.condition import Condition
from state_lib.checks.conditions import store_lost, stores_seen
from state_lib.checks.facts import HostSeen, TaskSeen
from state_lib.checks.holding import Holding

ALL = None
NOTHING: frozenset[str] = frozenset()


def down(*hosts: str) -> list[Condition]:
    return [Condition("host-down", "app", h, "gone", "there", "start it", "hosts") for h in hosts]


def fed(holding: Holding, *hosts: str, at: float, sure: frozenset[str] | None = ALL) -> object:
    began, over = holding.feed(down(*hosts), sure, at)
    return [c.subject for c in began], over


def test_it_begins_when_it_has_held_for_long_enough() -> None:
    holding = Holding(10)
    assert fed(holding, "a", at=0) == ([], [])
    assert fed(holding, "a", at=9) == ([], [])
    assert fed(holding, "a", at=10) == (["a"], [])
    assert fed(Holding(0), "a", at=5) == (["a"], [])


def test_who_stops_looking_before_that_has_not_decided() -> None:
    holding = Holding(10, known=["b"], calm_s=5)
    seen = []
    for at, hosts in enumerate((["b"], ["a", "b"], ["b"], [])):
        fed(holding, *hosts, at=at)
        seen.append(holding.undecided)
    assert seen == [False, True, False, True], "known; a is new; it was nothing; b may be over"


def test_one_missed_answer_is_no_alarm_also_if_others_miss_the_next() -> None:
    holding = Holding(10)
    assert fed(holding, "a", at=0) == ([], [])
    assert fed(holding, "b", at=5) == ([], [])
    assert fed(holding, "a", at=10) == ([], [])
    assert fed(holding, "a", at=20) == (["a"], [])


def test_it_is_over_when_it_has_not_held_for_long_enough() -> None:
    holding = Holding(0, known=["a", "b"], calm_s=10)
    assert fed(holding, "a", "b", at=0) == ([], [])
    assert fed(holding, "b", at=5) == ([], [])
    assert fed(holding, "a", "b", at=10) == ([], []), "it is back"
    assert fed(holding, "b", at=12) == ([], [])
    assert fed(holding, "b", at=22) == ([], ["a"])


def test_what_is_known_is_not_told_again_and_what_is_new_is() -> None:
    holding = Holding(0, known=["a"])
    assert fed(holding, "a", at=0) == ([], [])
    assert fed(holding, "a", "b", at=1) == (["b"], [])


def test_time_in_which_nobody_could_be_asked_does_not_count() -> None:
    holding = Holding(10, known=["k"])
    assert fed(holding, "a", at=0) == ([], [])
    assert fed(holding, at=1, sure=NOTHING) == ([], [])
    assert fed(holding, at=300, sure=NOTHING) == ([], [])
    assert fed(holding, "a", at=301) == ([], []), "it held for a second, and for one more"
    assert fed(holding, "a", at=310) == (["a"], ["k"])


def test_a_subject_that_could_not_be_seen_is_not_over() -> None:
    holding = Holding(0, known=["a", "b"], calm_s=10)
    sure = frozenset({"b"})
    assert fed(holding, at=0, sure=sure) == ([], [])
    assert fed(holding, at=10, sure=sure) == ([], ["b"])


def test_hosts_that_start_know_little_at_first() -> None:
    holding = Holding(0, known=["a"])
    assert fed(holding, at=0) == ([], [])
    assert fed(holding, at=9) == ([], [])
    assert fed(holding, at=10) == ([], ["a"])


def test_a_lost_store_is_lost_until_it_is_open_also_while_it_is_restored() -> None:
    """However long that takes, and however often it fails; each event is followed by another."""
    told, known, now = list[str](), list[str](), 0.0
    holding = Holding(0)
    states = ["open", "quarantined", "restoring", "opening", "quarantined", "restoring", "open"]
    for state in states:
        for _ in range(12):
            now += 5
            hosts = [HostSeen("host-1", None, (TaskSeen(0, state, "its SST is corrupt"),))]
            found = store_lost("app", hosts)
            began, over = holding.feed(found, stores_seen("app", hosts), now)
            if began or over:
                told += [f"{'began' if began else 'over'} while {state}"]
                known = [c.subject for c in began]
                holding = Holding(0, known)
    assert told == ["began while quarantined", "over while open"]
