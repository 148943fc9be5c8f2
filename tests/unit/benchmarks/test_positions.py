import pytest

from benchmarks.positions import Positions, Span

SAMPLES = [(0.0, 0), (1.0, 0), (2.0, 100), (3.0, 100), (4.0, 300), (6.0, 500), (7.0, 500)]


def nothing() -> None:
    """The contender lives."""


def test_a_rate_is_between_two_known_positions() -> None:
    span = Positions(lambda: 0, SAMPLES).between(50, 500)
    assert span == Span((2.0, 100), (6.0, 500))
    assert (span.seconds, span.per_second) == (4, 100)


def test_one_commit_beyond_both_positions_counts_from_the_one_before() -> None:
    positions = Positions(lambda: 0, SAMPLES)
    assert positions.between(350, 500) == Span((4.0, 300), (6.0, 500))
    assert positions.between(150, 300) == Span((2.0, 100), (4.0, 300)), "not from (3.0, 100)"
    assert positions.between(50, 80) == Span((0.0, 0), (2.0, 100)), "it began at 0"


def test_time_between_commits() -> None:
    positions = Positions(lambda: 0, SAMPLES)
    assert positions.commit_every_s(positions.between(100, 500)) == 2


def test_sampling_ends_at_the_target() -> None:
    answers = iter([0, 3, 3, 9])
    positions = Positions(lambda: next(answers))
    positions.until(5, nothing)
    assert [position for _, position in positions.samples] == [0, 3, 3, 9]


def test_a_contender_that_ended_is_not_waited_for() -> None:
    def dead() -> None:
        raise RuntimeError("ended with 1")

    with pytest.raises(RuntimeError, match="ended with 1"):
        Positions(lambda: 0).until(5, dead)


def test_a_contender_that_is_stuck_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchmarks.positions.STALL_S", 0.1)
    with pytest.raises(RuntimeError, match="stuck at 4 of 5"):
        Positions(lambda: 4).until(5, nothing)
