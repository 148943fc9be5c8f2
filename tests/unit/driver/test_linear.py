"""What aligns goes over a year of batches once: counted, for time says little on a busy machine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from state_lib.changelog import progress
from state_lib.changelog.progress import Recorded, effective, repeats
from state_lib.driver.versions import Chain, behind
from state_lib.kafka import Partition

P = ("t", 0)
SIZES = (500, 1000)


def batch(epoch: int, n: int) -> Recorded:
    return Recorded(epoch, n, {P: n}, {P: n + 1}, 0, 0)


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """One more entry for each comparison of a batch with positions."""
    made: list[int] = []
    reaches, covers = progress._reaches, Recorded.covers

    def reached(record: Recorded, positions: Mapping[Partition, int]) -> bool:
        made.append(record.batch_number)
        return reaches(record, positions)

    def covered(record: Recorded, positions: Mapping[Partition, int]) -> bool:
        made.append(record.batch_number)
        return covers(record, positions)

    monkeypatch.setattr(progress, "_reaches", reached)
    monkeypatch.setattr(Recorded, "covers", covered)
    return made


@pytest.mark.parametrize("size", SIZES)
def test_which_batches_stand(looks: list[int], size: int) -> None:
    """A run; then drivers that each begin with the last batch of the one before; then one anew."""
    run = [batch(1, n) for n in range(size)]
    crashes = [batch(1 + n, size) for n in range(1, size)]
    again = [batch(size + 1, n) for n in range(size)]
    assert effective([*run, *crashes]) == [*run, crashes[-1]]
    assert effective([*run, *crashes, *again]) == again
    assert len(looks) <= 3 * (3 * size + 2 * size)


@pytest.mark.parametrize("size", SIZES)
def test_which_batches_stand_after_a_task_has_caught_up(looks: list[int], size: int) -> None:
    """What it had missed is recorded again, one by one, and the stream goes on."""
    run = [batch(1, n) for n in range(size)]
    again = [replace(batch(2, n), aligned=True) for n in range(size // 2, size)]
    more = [batch(2, n) for n in range(size, size + 10)]
    assert effective([*run, *again, *more]) == [*run[: size // 2], *again, *more]
    assert len(looks) <= 3 * (2 * size)


@pytest.mark.parametrize("size", SIZES)
def test_what_a_task_has_next_that_missed_many(looks: list[int], size: int) -> None:
    chain, reads = [batch(1, n) for n in range(size)], []

    def read() -> list[Recorded]:
        reads.append(1)
        return chain

    once, at = Chain(read), [{P: size}, {P: 0}]
    for n in range(size):
        found = behind(at, once)
        assert found is not None
        assert (found.tasks, found.batch) == ([1], chain[n])
        at[1] = {P: n + 1}
    assert behind(at, once) is None
    assert len(reads) == 1
    assert len(looks) <= 3 * size


@pytest.mark.parametrize("size", SIZES)
def test_the_way_of_one_that_missed_many(looks: list[int], size: int) -> None:
    chain = [batch(1, n) for n in range(size)]
    found, here = repeats({P: 0}, {P: size}, chain)
    assert (found, here) == (chain, {P: size})
    assert len(looks) <= 3 * size


def test_one_that_stands_further_back_is_found_all_the_same() -> None:
    chain = Chain(lambda: [batch(1, n) for n in range(5)])
    assert chain.next_of({P: 3}) == batch(1, 3)
    assert chain.next_of({P: 1}) == batch(1, 1)
    assert chain.next_of({P: 9}) is None
    assert chain.next_of({P: 4}) == batch(1, 4)
