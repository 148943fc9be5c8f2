"""When a driver is stalled, and when that is over, by looks that know nothing of those before."""

from __future__ import annotations

from dataclasses import replace

from state_lib.checks.holding import Holding
from state_lib.checks.stalling import Stalling
from state_lib.drivers.sight import DriverFacts, Ended, Sight

NOTHING: frozenset[str] = frozenset()
DRIVER = DriverFacts("d1", "machine", 4711, "", 7, 0)
BUSY = Sight(
    at=0, drivers=("d1",), epoch=7, driver="d1", facts=DRIVER, batch_number=1, done=5, total=9
)
GONE = replace(BUSY, drivers=(), ended=(Ended("d1", "failed", "no memory"),))
HOLD_S = 60.0
EVERY_S = 5


class Watch:
    """As the trigger and its task: after each thing that is told another trigger looks."""

    def __init__(self) -> None:
        self.now, self.told = 1000.0, list[str]()
        self._known: list[str] = []
        self.again()

    def again(self) -> None:
        """The triggerer starts again: another one looks, which knows no batch."""
        self._stalling, self._holding = Stalling("app"), Holding(HOLD_S, self._known)

    def look(self, sight: Sight, seconds: int = EVERY_S) -> None:
        """It looks like this for some time."""
        for _ in range(0, seconds, EVERY_S):
            self.now += EVERY_S
            found, sure = self._stalling.feed(sight, self.now)
            began, over = self._holding.feed(found, None if sure else NOTHING, self.now)
            if began or over:
                self.told += ["began"] * len(began) + ["over"] * len(over)
                self._known = [c.subject for c in began]
                self.again()

    def batches(self, first: int, count: int) -> None:
        """Batches of 10 s each are committed."""
        for n in range(first, first + count):
            self.look(replace(BUSY, batch_number=n), 10)


def test_a_stall_is_told_once_and_is_over_with_a_commit() -> None:
    watch = Watch()
    watch.batches(1, 10)
    watch.look(replace(BUSY, batch_number=10), 1500)
    assert watch.told == ["began"]
    watch.again()
    watch.look(replace(BUSY, batch_number=10), 1500)
    assert watch.told == ["began"], "also for a triggerer that starts again meanwhile"
    watch.batches(11, 10)
    assert watch.told == ["began", "over"]


def test_it_is_over_when_there_is_nothing_more_to_do_or_somebody_stops_it() -> None:
    stopped = replace(BUSY, drivers=(), ended=(Ended("d1", "stopped", "the day is over"),))
    for well in (replace(BUSY, done=9), stopped):
        watch = Watch()
        watch.look(BUSY, 600)
        assert watch.told == ["began"]
        watch.look(well, 120)
        assert watch.told == ["began", "over"]


def test_a_driver_that_is_started_again_and_commits_nothing_is_not_well() -> None:
    """Each start has some time, and a driver that fails at each is gone only in between."""
    watch = Watch()
    for epoch in range(8, 18):
        restarted = replace(BUSY, epoch=epoch, batch_number=0)
        watch.look(replace(GONE, epoch=epoch), 20)
        watch.look(restarted, 100)
    assert watch.told == ["began"]
    watch.batches(1, 10)
    assert watch.told == ["began", "over"]
