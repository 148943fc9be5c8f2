"""What counts as the time of a batch."""

from __future__ import annotations

from dataclasses import asdict

from state_lib.drivers.pace import Pace
from state_lib.drivers.sight import Sight


def test_a_batch_that_waited_for_repeats_tells_nothing_of_its_time() -> None:
    """Nor do repeats that a task of a former driver needed: they have numbers of their own."""
    pace, now = Pace(), 1000.0

    def look(n: int, repeats: int, seconds: float) -> bool:
        nonlocal now
        now += seconds
        return pace.feed(Sight(at=0, epoch=1, batch_number=n, total=9, repeats=repeats), now)

    look(1, 0, 1)
    assert look(2, 0, 3)
    assert pace.times == [3.0]
    assert not look(2, 1, 4)
    assert not look(2, 3, 4)
    assert look(6, 3, 2), "a commit all the same"
    assert pace.times == [3.0]
    assert pace.late(now + 1) is None
    assert look(7, 3, 5)
    assert pace.times == [3.0, 5.0]
    assert Pace.from_json(asdict(pace)) == pace
