import signal
import time
from functools import partial
from pathlib import Path

import pytest

from benchmarks.measure import ALIKE, Contender, Measurement
from benchmarks.runner import TooLong, limit, run
from benchmarks.world import World


def test_a_step_that_takes_too_long_is_ended_by_name() -> None:
    before = signal.getsignal(signal.SIGALRM)
    with (
        pytest.raises(TooLong, match=r"round 1, holdfast took longer than 0\.05 s"),
        limit(0.05, "round 1, holdfast"),
    ):
        time.sleep(10)
    assert signal.getsignal(signal.SIGALRM) is before


@pytest.mark.parametrize("seconds", [0, 60])
def test_a_step_within_its_time_is_left_alone(seconds: float) -> None:
    before = signal.getsignal(signal.SIGALRM)
    with limit(seconds, "a step"):
        time.sleep(0.01)
    assert signal.getsignal(signal.SIGALRM) is before


class Two:
    """A `Benchmark` of a contender that works and one that fails in the second round."""

    name, title, unit, more_is_better, guarantees = "two", "two", "s", False, ALIKE

    def __init__(self) -> None:
        self.ran = 0

    def prepare(self, world: World) -> None:
        """Nothing is shared."""

    def contenders(self) -> dict[str, Contender]:
        return {"works": lambda _: Measurement(1, 0, 0), "fails": self._fail}

    def _fail(self, _world: World) -> Measurement:
        self.ran += 1
        if self.ran > 1:
            raise RuntimeError("ended with 1")
        return Measurement(2, 0, 0)


def test_a_contender_that_fails_is_told_and_does_not_end_the_others(tmp_path: Path) -> None:
    said, two = list[str](), Two()
    rounds = run(two, World(tmp_path, 1.0, said.append), 3)
    assert [list(runs) for runs in rounds] == [["works"]] * 3
    assert two.ran == 2
    assert "two, round 2 of 3, fails failed, its rounds do not count: ended with 1" in said


class Order(Two):
    """Three contenders that only write down whose turn it was."""

    def __init__(self) -> None:
        super().__init__()
        self.turns = list[str]()

    def contenders(self) -> dict[str, Contender]:
        return {name: partial(self._note, name) for name in ("a", "b", "c")}

    def _note(self, name: str, _world: World) -> Measurement:
        self.turns.append(name)
        return Measurement(1, 0, 0)


def test_contenders_take_turns_and_every_other_round_is_backwards(tmp_path: Path) -> None:
    order = Order()
    rounds = run(order, World(tmp_path, 1.0, print), 3)
    assert "".join(order.turns) == "abc" + "cba" + "abc"
    assert [list(runs) for runs in rounds] == [["a", "b", "c"]] * 3, "results in one order"


def test_an_error_is_raised_where_every_contender_failed(tmp_path: Path) -> None:
    two = Two()
    two.ran = 1
    with pytest.raises(RuntimeError, match="ended with 1"):
        run(two, World(tmp_path, 1.0, print), 1, ["fails"])
