"""Which of the tasks that are back repeats what, while others come back. No Spark, no Kafka."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

from state_lib.changelog.progress import Recorded
from state_lib.marker import Marker
from state_lib.spark.parking import Parking, _Returning
from state_lib.spark.runs import Step
from tests.support.waiting import SLOWNESS

P = ("t", 0)
CHAIN = [Recorded(1, n, {P: n}, {P: n + 1}, 0, 0, offset=n) for n in range(3)]


def parking(asked: list[int]) -> Parking:
    """The others stand behind the last batch; ``asked`` gets the offsets that are read from."""

    def records(since: int) -> Sequence[Recorded]:
        asked.append(since)
        return CHAIN[since:]

    standing = SimpleNamespace(positions={P: len(CHAIN)})
    batches: Any = SimpleNamespace(standing=standing, most_records=lambda _: 1000)
    nothing: Any = None
    return Parking(batches, nothing, nothing, records, lambda: False)


def standing(at: int) -> _Returning:
    """A task that has the batch of that number next."""
    return _Returning(Marker(recorded=at), {P: at})


def run(begin: int, end: int) -> list[Step]:
    """The batches from one number to another."""
    return [Step(CHAIN[n], {P: n}, {P: n + 1}) for n in range(begin, end)]


def test_who_comes_back_does_not_disturb_a_look_at_the_others() -> None:
    made, found = parking([]), list[Any]()
    made._returning[4] = standing(1)
    look = threading.Thread(target=lambda: found.append(made._late()))
    with made._lock:
        look.start()
        look.join(0.5)
        assert look.is_alive(), "it waits for the thread that adds one"
    look.join(60 * SLOWNESS)
    assert found == [([4], run(1, 3), 1)]


def test_who_comes_back_from_further_behind_finds_its_batch() -> None:
    asked: list[int] = []
    made = parking(asked)
    made._returning[4] = standing(2)
    assert made._late() == ([4], run(2, 3), 1)
    made._returning[5] = standing(0)
    assert made._late() == ([5], run(0, 2), 2), "up to where the other one stands"
    made._returning[5] = standing(1)
    assert made._late() == ([5], run(1, 2), 2)
    assert asked == [2, 0], "the log is not read anew for each"
