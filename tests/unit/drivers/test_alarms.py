"""Stalls, silence and growing lag, in simulated hours of a driver's life."""

from __future__ import annotations

import random

import pytest

from state_lib.drivers.events import Event
from state_lib.drivers.sight import DriverFacts, Running, Sight
from state_lib.drivers.supervision import Supervision
from state_lib.drivers.trend import fit

ID = "d"
FACTS = DriverFacts(ID, "h", 1, "", 0, 0)
START = 1_800_000_000.0


class World:
    """A driver that takes what is there into a batch, up to a limit, and needs time for it."""

    def __init__(self, arrives: float, jitter: float = 0.2, seed: int = 1) -> None:
        self.arrives, self.speed, self.most, self.jitter = arrives, 20_000.0, 100_000.0, jitter
        self.random = random.Random(seed)  # noqa: S311 - repeatable
        self.supervision = Supervision("app", ID, START)
        self.at = self.batch_ends = self.since = START
        self.total = self.done = self.begun = 0.0
        self.n = 1
        self.stuck = False
        self.member = True
        self.hosts: tuple[str, ...] = ()
        self.parked: tuple[int, ...] = ()
        self.events: list[Event] = []

    def run(self, seconds: float, look_s: float = 2.0) -> list[Event]:
        """Simulate; returns what was told, progress aside."""
        end, told = self.at + seconds, len(self.events)
        while self.at < end:
            self.at += look_s
            self.total += self.arrives * look_s
            while not self.stuck and self.at >= self.batch_ends:
                self._batch()
            self.events += self.supervision.feed(self.sight(), process=True, now=self.at)
        return [e for e in self.events[told:] if e.name != "progress"]

    def _batch(self) -> None:
        self.done = self.begun
        self.n += self.since != self.batch_ends
        self.since = self.batch_ends
        self.begun = min(self.total, self.done + self.most)
        took = 0.5 + (self.begun - self.done) / self.speed
        mean_one = -(self.jitter**2) / 2
        self.batch_ends += took * self.random.lognormvariate(mean_one, self.jitter)

    def resume(self) -> None:
        self.stuck, self.member, self.batch_ends = False, True, self.at

    def sight(self) -> Sight:
        return Sight(
            at=int(self.at * 1000),
            drivers=(ID,) if self.member else (),
            epoch=0,
            driver=ID,
            facts=FACTS,
            batch_number=self.n,
            done=int(self.done),
            total=int(self.total),
            batch=Running(self.n + 1, int(self.begun - self.done), int(self.since * 1000)),
            hosts=self.hosts,
            parked=self.parked,
        )


def names(events: list[Event]) -> list[str]:
    return [e.name for e in events]


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("jitter", [0.05, 0.3])
@pytest.mark.parametrize("load", [0.1, 0.5, 0.85])
def test_a_healthy_driver_raises_no_alarm(load: float, jitter: float, seed: int) -> None:
    """Two hours each, with batches of several seconds, some of them twice the median."""
    world = World(arrives=18_000 * load, jitter=jitter, seed=seed)
    assert names(world.run(7200)) == ["started", "committing"]


def test_a_stall_is_told_once_with_its_reason() -> None:
    world = World(arrives=10_000)
    world.run(600)
    world.stuck = True
    (stall,) = world.run(1800)
    assert stall.name == "stalled"
    assert stall.details["reason"] == "batch"
    assert stall.details["seconds"] <= 30
    assert "records runs since" in stall.text
    world.resume()
    (over,) = world.run(60)
    assert (over.name, over.details["of"]) == ("recovered", "stalled")


def test_a_stall_names_hosts_that_are_away() -> None:
    world = World(arrives=10_000)
    world.run(600)
    world.stuck, world.hosts = True, ("host host-1 at x does not answer (ConnectError)",)
    (stall,) = world.run(100)
    assert stall.details["reason"] == "hosts"
    assert "host-1" in stall.text


def test_batches_that_grow_longer_are_expected_to() -> None:
    """The limit follows the trend: batches without a bound that fall behind take ever longer."""
    world = World(arrives=22_000, jitter=0.1)
    world.most = float("inf")
    told = world.run(600)
    assert world.batch_ends - world.since > 60
    assert "stalled" not in names(told)


def test_nothing_to_do_is_no_stall() -> None:
    world = World(arrives=1000)
    world.run(300)
    world.arrives = 0
    assert names(world.run(7200)) == []


def test_a_pause_of_the_supervisor_is_no_stall() -> None:
    world = World(arrives=10_000)
    world.run(600)
    world.stuck = True
    assert names(world.run(10)) == []
    world.at += 7200
    assert names(world.run(10)) == []


def test_growing_lag_is_told_once_in_words_and_closed_once() -> None:
    world = World(arrives=10_000)
    world.run(600)
    world.arrives = 30_000
    told = world.run(3600)
    assert names(told) == ["lag_growing"]
    growing = told[0].details
    assert growing["in_per_s"] == pytest.approx(30_000, rel=0.25)
    assert growing["committed_per_s"] == pytest.approx(18_000, rel=0.25)
    assert "records/min" in told[0].text
    world.arrives = 1000
    assert names(world.run(3600)) == ["lag_shrinking"]


def test_a_suspended_driver_is_unresponsive_and_not_stalled() -> None:
    world = World(arrives=10_000)
    world.run(300)
    world.stuck, world.member = True, False
    assert names(world.run(600)) == ["unresponsive"]
    world.resume()
    (over,) = world.run(60)
    assert (over.name, over.details["of"]) == ("recovered", "unresponsive")


def test_a_driver_that_never_claims_is_told_once() -> None:
    supervision = Supervision("app", ID, START)
    told = []
    for second in range(0, 3600, 2):
        told += supervision.feed(Sight(at=0), process=True, now=START + second)
    assert names(told) == ["stalled"]
    assert "has not claimed" in told[0].text


def test_a_line_knows_how_far_it_can_be_trusted() -> None:
    exact = fit([0, 1, 2, 3], [1, 3, 5, 7])
    assert (exact.slope, exact.start, exact.error) == (2, 1, 0)
    assert fit([1, 1, 1], [1, 2, 3]).error == float("inf")
    assert fit([], []).slope == 0
    rng = random.Random(7)  # noqa: S311 - repeatable
    xs = list(range(200))
    walk = [0.0]
    for _ in xs[1:]:
        walk.append(walk[-1] + rng.gauss(0, 1))
    noise = [rng.gauss(0, 1) for _ in xs]
    assert fit(xs, walk).error > 3 * fit(xs, noise).error, "a random walk is no trend"


def test_tasks_that_are_left_out_are_told_once() -> None:
    world = World(arrives=1000)
    world.run(60)
    world.parked, world.hosts = (1, 3), ("host host-2 does not answer",)
    (one,) = world.run(60)
    assert (one.name, one.details["tasks"]) == ("parked", [1, 3])
    assert "without tasks 1, 3" in one.text
    assert "host-2" in one.text
    world.parked = (3,)
    assert world.run(60) == []
    world.parked = (2, 3)
    (more,) = world.run(60)
    assert (more.name, more.details["tasks"]) == ("parked", [2, 3])
    world.parked = ()
    (over,) = world.run(60)
    assert (over.name, over.details["tasks"]) == ("unparked", [1, 2, 3])
