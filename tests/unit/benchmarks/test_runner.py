import signal
import time

import pytest

from benchmarks.runner import TooLong, limit


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
