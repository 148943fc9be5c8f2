"""What the soak judges by: memory that stays flat, promises, rounds of which none is left out."""

from __future__ import annotations

import json
import random
from itertools import islice
from pathlib import Path

import pytest

from tests.chaos.soak.bounds import too_late
from tests.chaos.soak.deck import (
    AIRFLOW,
    BROKER,
    DELETED,
    DRIVER,
    FIRST,
    HOST,
    JVM,
    MORE,
    SERVICES,
    TRIGGERER,
    Round,
    deck,
)
from tests.chaos.soak.ledger import Loss
from tests.chaos.soak.lives import WARM_S, Life, row_of
from tests.chaos.soak.told import Told

EVERY_S, MINUTES = 5, 10


def life(began: float, mib_per_min: float, heap: float | None = None, mib: float = 200) -> Life:
    """A process that loads 300 MiB more in its first minute, and wobbles from then on."""
    made = Life("host-1", began, heap)
    for number in range(MINUTES * 60 // EVERY_S):
        age = number * EVERY_S
        loaded = mib + 300 * min(1, age / 60)
        made.samples.append((began + age, loaded + mib_per_min * age / 60 + number % 3))
    return made


@pytest.mark.parametrize(("slope", "verdict"), [(0.0, "flat"), (2.0, "flat"), (8.0, "GROWS")])
def test_growth_is_told_from_a_wobble_and_from_a_start(slope: float, verdict: str) -> None:
    row = row_of("host-1", [life(1000, slope)], 0)
    assert (row.verdict, row.bad) == (verdict, verdict == "GROWS")
    assert row.slope == pytest.approx(slope, abs=0.2)
    assert row.minutes == pytest.approx(MINUTES - WARM_S / 60, abs=0.1)


def test_lives_of_different_sizes_are_no_growth() -> None:
    row = row_of("host-1", [life(0, 0.0), life(600, 0.0, mib=900)], 0)
    assert (row.lives, row.verdict) == (2, "flat")


def test_only_what_is_seen_for_long_enough_is_judged() -> None:
    whole = life(0, 8.0)
    assert row_of("host-1", [whole], MINUTES * 60 - 60).verdict == "too short"
    assert row_of("host-1", [Life("host-1", 0, None, whole.samples[:20])], 0).slope is None


def test_a_heap_may_fill_to_its_bound_and_no_further() -> None:
    assert not row_of("kafka", [life(0, 30.0, heap=512)], 0).bad
    assert row_of("kafka", [life(0, 90.0, heap=512)], 0).bad


def test_every_round_comes_and_those_that_matter_come_first() -> None:
    played = list(islice(deck(random.Random(7)), len(FIRST) + len(MORE)))  # noqa: S311 - repeatable
    assert set(played[: len(FIRST)]) == set(FIRST)
    assert set(played) == {*FIRST, *MORE}
    again = list(islice(deck(random.Random(7)), len(FIRST)))  # noqa: S311 - as above
    assert played[: len(FIRST)] == again, "the same seed, the same rounds"


def test_a_second_restore_of_a_loss_is_found() -> None:
    loss = Loss(0, "host-1", "deleted", 0.0, 3, built=2)
    with pytest.raises(AssertionError, match="soak/0 was built 2 times"):
        loss.check_built()
    loss.built = 0
    with pytest.raises(AssertionError, match="built 0 times"):
        loss.check_built()
    loss.killed = ["host-1"]
    loss.check_built()


@pytest.mark.parametrize(
    ("one", "driver_s", "commit_s", "late"),
    [
        (Round((DRIVER,)), 9.0, 20.0, []),
        (Round((DRIVER,)), 11.0, 8.0, ["a driver after 11.0 s and not 10"]),
        (Round((JVM,)), 8.0, 23.0, ["committing after 31.0 s and not 30"]),
        (Round((DRIVER, AIRFLOW)), 29.0, 29.0, []),
        (Round((DRIVER, TRIGGERER)), 31.0, 9.0, ["a driver after 31.0 s and not 30"]),
        (Round((HOST, DRIVER)), 50.0, 90.0, []),
        (Round((DRIVER,), DELETED), 50.0, 90.0, []),
    ],
)
def test_a_driver_that_is_late_is_found(
    one: Round, driver_s: float, commit_s: float, late: list[str]
) -> None:
    took = {"driver": driver_s, "commit": commit_s}
    assert too_late(one, took) == late
    assert too_late(one, took, slowness=3) == []


def test_somebody_of_each_kind_is_killed_and_timed_where_the_promise_is() -> None:
    killed = {victim for one in FIRST for victim in one.victims}
    assert {DRIVER, HOST, BROKER, AIRFLOW, *SERVICES} <= killed
    timed = [one for one in FIRST if one.timed]
    assert {one.of_airflow for one in timed} == {True, False}
    slow = {"driver": 100.0, "commit": 100.0}
    assert all(too_late(one, slow) for one in timed), "a round without a bound is not timed"


def test_what_is_told_of_several_is_told_of_each(tmp_path: Path) -> None:
    said = [
        {"kind": "alarm", "condition": "host-down", "subject": "host-1, host-2"},
        {"kind": "recovery", "condition": "host-down", "subject": "host-2"},
        {"kind": "alarm", "condition": "store-lost", "subject": "soak/0"},
    ]
    assert Told(tmp_path / "nothing").of("host-down") == []
    (tmp_path / "told").write_text("".join(f"{json.dumps(one)}\n" for one in said))
    told = Told(tmp_path / "told")
    assert told.of("host-down") == [
        ("alarm", "host-1"),
        ("alarm", "host-2"),
        ("recovery", "host-2"),
    ]
    assert told.counts()["alarm host-down"] == 1
