"""Which of the tasks that are back repeats what, while others come back. No Spark, no Kafka."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from state_lib.changelog.progress import Recorded
from state_lib.driver.runs import Step
from state_lib.errors import HoldfastError, RegistryAway, UnknownSchemas
from state_lib.protocol.marker import Marker
from state_lib.protocol.positions import Positions
from state_lib.spark.parking import Parking, _Returning
from tests.support.waiting import SLOWNESS

P = ("t", 0)
CHAIN = [Recorded(1, n, {P: n}, {P: n + 1}, 0, 0, offset=n) for n in range(3)]


def parking(asked: list[int]) -> Parking:
    """The others stand behind the last batch; ``asked`` gets the offsets that are read from."""

    def records(since: int) -> Sequence[Recorded]:
        asked.append(since)
        return CHAIN[since:]

    return made(SimpleNamespace(positions={P: len(CHAIN)}), records)


def made(
    now: SimpleNamespace,
    records: Callable[[int], Sequence[Recorded]],
    *,
    timers: bool = False,
    folds: bool = False,
) -> Parking:
    """``now``: where the others stand; ``timers``: with processors. What is repeated is lost."""
    now.log = "log" if timers else ""
    batches: Any = SimpleNamespace(
        standing=now,
        has_timers=timers,
        depends_on_cut=timers or folds,
        most_records=lambda _: 1000,
        check_code=lambda *_: None,
        align=lambda *_: None,
    )
    nothing: Any = None
    return Parking(batches, nothing, nothing, records, lambda: False)


def standing(at: int) -> _Returning:
    """A task that has the batch of that number next."""
    return _Returning(Marker(recorded=at), {P: at})


def run(begin: int, end: int) -> list[Step]:
    """The batches from one number to another."""
    return [Step(CHAIN[n], {P: n}, {P: n + 1}) for n in range(begin, end)]


def test_who_comes_back_does_not_disturb_a_look_at_the_others() -> None:
    one, found = parking([]), list[Any]()
    one._returning[4] = standing(1)
    look = threading.Thread(target=lambda: found.append(one._late()))
    with one._lock:
        look.start()
        look.join(0.5)
        assert look.is_alive(), "it waits for the thread that adds one"
    look.join(60 * SLOWNESS)
    assert found == [([4], run(1, 3), 1)]


def test_who_comes_back_from_further_behind_finds_its_batch() -> None:
    asked: list[int] = []
    one = parking(asked)
    one._returning[4] = standing(2)
    assert one._late() == ([4], run(2, 3), 1)
    one._returning[5] = standing(0)
    assert one._late() == ([5], run(0, 2), 2), "up to where the other one stands"
    one._returning[5] = standing(1)
    assert one._late() == ([5], run(1, 2), 2)
    assert asked == [2, 0], "the log is not read anew for each"


def test_how_large_runs_may_be_is_asked_once_for_each_time_that_the_stream_waits() -> None:
    one, asked = parking([]), list[Any]()

    def most_records(at: Any) -> int:
        asked.append(at)
        return 1000

    one.batches.most_records = most_records  # type: ignore[method-assign]
    one._returning[4] = standing(0)
    one._late()
    one._returning[4] = standing(1)
    one._late()
    assert asked == [{P: 0}]
    one._returning.clear()
    one.bring_back(0)
    one._returning[4] = standing(1)
    one._late()
    assert asked == [{P: 0}, {P: 1}]


@pytest.mark.parametrize("timers", [True, False])
def test_an_application_that_runs_python_per_key_repeats_batch_by_batch(timers: bool) -> None:
    now = SimpleNamespace(positions={P: len(CHAIN)}, recorded=2)
    one = made(now, lambda since: CHAIN[max(since, 0) :], timers=timers, folds=True)
    one._returning[4] = standing(0)
    assert one._late() == ([4], run(0, 1), 3)
    one._returning[4] = standing(1)
    assert one._late() == ([4], run(1, 2), 2)


def test_who_is_where_the_others_are_repeats_the_ticks_that_it_missed() -> None:
    here = {P: len(CHAIN)}
    tick = Recorded(1, 3, here, here, 0, 0, offset=3, tick=True)
    read: list[list[Recorded]] = [CHAIN, [*CHAIN, tick]]
    now = SimpleNamespace(positions=here, recorded=3)
    one = made(now, lambda _: read.pop(0), timers=True)
    one._returning[4] = _Returning(Marker(recorded=2, recorded_in="log"), here)
    assert not one._is_here(one._returning[4])
    assert one._late() == ([4], [Step(tick, here, here)], 0), "found where the log is read anew"
    one._returning[4] = _Returning(Marker(recorded=3, recorded_in="log"), here)
    assert one._is_here(one._returning[4])
    assert one._late() is None


def test_ticks_of_a_progress_topic_of_before_are_not_those_of_this_one() -> None:
    """A task that was parked knows offsets of the old one, which may be any in the new one."""
    here = {P: len(CHAIN)}
    tick = Recorded(2, 3, here, here, 0, 0, offset=3, tick=True)
    now = SimpleNamespace(positions=here, recorded=3)
    one = made(now, lambda _: [tick], timers=True)
    one._returning[4] = _Returning(Marker(recorded=5000, recorded_in="deleted"), here)
    assert not one._is_here(one._returning[4])
    assert one._late() == ([4], [Step(tick, here, here)], 0)


def test_who_missed_ticks_that_are_gone_is_not_lost() -> None:
    """It stands where the others do, and what it missed stood in a topic that was deleted."""
    here = {P: len(CHAIN)}
    one = made(SimpleNamespace(positions=here, recorded=3), lambda _: [], timers=True)
    one._returning[4] = _Returning(Marker(recorded=2, recorded_in="log"), here)
    assert one._late() is None
    assert one._is_here(one._returning[4])


@pytest.mark.parametrize("recorded", [2, 3])
def test_who_did_not_take_a_tick_is_claimed_again_after_a_pause(recorded: int) -> None:
    """It stands where the tick leads to in any case: its marker tells."""
    here = {P: len(CHAIN)}
    tick = Recorded(1, 3, here, here, 0, 0, offset=3, tick=True)
    marker = Marker(positions=Positions(here), recorded=recorded, recorded_in="log")
    one = made(SimpleNamespace(positions=here, markers={4: marker}), lambda _: [], timers=True)
    one._returning[4] = _Returning(replace(marker, recorded=2), here)
    one._repeat([4], [Step(tick, here, here)], 0)
    taken = recorded == tick.offset
    assert one._returning == ({4: _Returning(marker, here)} if taken else {})
    assert (4 in one._pauses) is not taken


@pytest.mark.parametrize("why", [UnknownSchemas, RegistryAway])
def test_who_lacks_a_schema_does_not_hold_up_the_others(why: type[HoldfastError]) -> None:
    """Its rows were of one that the registry has lost, or it does not answer."""
    here = {P: len(CHAIN)}
    now = SimpleNamespace(positions=here, markers={4: Marker(positions=Positions({P: 0}))})
    one = made(now, lambda _: [])
    patience = list[bool]()

    def align(_rows: object, _steps: object, _tasks: object, stopped: Callable[[], bool]) -> None:
        patience.append(stopped())
        raise why("it is gone", url="u", ids=[7])

    anything: Any = one
    anything.batches.align, anything._read = align, lambda *_: None
    one._returning[4] = standing(0)
    one._repeat([4], run(0, 1), 1)
    assert patience == [False]
    assert not one._returning
    assert 4 in one._pauses
