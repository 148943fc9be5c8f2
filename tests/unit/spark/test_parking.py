"""Which of the tasks that are back repeats what, while others come back. No Spark, no Kafka."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

from state_lib.changelog.progress import Recorded
from state_lib.marker import Marker
from state_lib.spark.parking import Parking, _Returning
from tests.support.waiting import SLOWNESS

P = ("t", 0)
CHAIN = [Recorded(1, n, {P: n}, {P: n + 1}, 0, 0, offset=n) for n in range(3)]


def parking(asked: list[int]) -> Parking:
    """The others stand behind the last batch; ``asked`` gets the offsets that are read from."""

    def records(since: int) -> Sequence[Recorded]:
        asked.append(since)
        return CHAIN[since:]

    batches: Any = SimpleNamespace(
        standing=SimpleNamespace(positions={P: len(CHAIN)}), has_timers=False
    )
    nothing: Any = None
    return Parking(batches, nothing, nothing, records, lambda: False)


def standing(at: int) -> _Returning:
    """A task that has the batch of that number next."""
    return _Returning(Marker(recorded=at), {P: at})


def test_who_comes_back_does_not_disturb_a_look_at_the_others() -> None:
    made, found = parking([]), list[Any]()
    made._returning[4] = standing(1)
    look = threading.Thread(target=lambda: found.append(made._late()))
    with made._lock:
        look.start()
        look.join(0.5)
        assert look.is_alive(), "it waits for the thread that adds one"
    look.join(60 * SLOWNESS)
    assert found == [([4], CHAIN[1])]


def test_who_comes_back_from_further_behind_finds_its_batch() -> None:
    asked: list[int] = []
    made = parking(asked)
    made._returning[4] = standing(2)
    assert made._late() == ([4], CHAIN[2])
    made._returning[5] = standing(0)
    assert made._late() == ([5], CHAIN[0])
    made._returning[5] = standing(1)
    assert made._late() == ([5], CHAIN[1])
    assert asked == [2, 0], "the log is not read anew for each"


def test_who_is_where_the_others_are_repeats_the_ticks_that_it_missed() -> None:
    here = {P: len(CHAIN)}
    tick = Recorded(1, 3, here, here, 0, 0, offset=3, tick=True)
    read: list[list[Recorded]] = [CHAIN, [*CHAIN, tick]]
    standing_now = SimpleNamespace(positions=here, recorded=3)
    batches: Any = SimpleNamespace(standing=standing_now, has_timers=True)
    nothing: Any = None
    made = Parking(batches, nothing, nothing, lambda _: read.pop(0), lambda: False)
    made._returning[4] = _Returning(Marker(recorded=2), here)
    assert not made._is_here(made._returning[4])
    assert made._late() == ([4], tick), "it is found where the log is read anew"
    made._returning[4] = _Returning(Marker(recorded=3), here)
    assert made._is_here(made._returning[4])
    assert made._late() is None
