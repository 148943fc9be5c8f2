import pytest

from benchmarks.pace import Commit, stall

BEFORE = [Commit(at, at + waited) for at, waited in ((0, 0.01), (1, 0.02), (2, 0.09))]


def test_a_stall_is_what_the_longest_commit_waited_beyond_the_usual() -> None:
    seen = stall([*BEFORE, Commit(11, 11.12), Commit(12, 12.03), Commit(30, 39)], 10, 20)
    assert tuple(seen) == pytest.approx((0.02, 0.09, 0.075, 0.12))
    assert seen.seconds == pytest.approx(0.1)


@pytest.mark.parametrize("commit", [Commit(9, 12), Commit(18, 21), Commit(9, 21)])
def test_a_commit_that_is_under_way_at_either_end_counts(commit: Commit) -> None:
    assert stall([*BEFORE, commit], 10, 20).worst == commit.waited


def test_no_stall_is_less_than_none() -> None:
    assert stall([*BEFORE, Commit(11, 11.001)], 10, 20).seconds == 0


@pytest.mark.parametrize("commits", [BEFORE, [Commit(11, 11.1)]])
def test_too_few_commits_give_no_figure(commits: list[Commit]) -> None:
    with pytest.raises(RuntimeError, match="too few"):
        stall(commits, 10, 20)
