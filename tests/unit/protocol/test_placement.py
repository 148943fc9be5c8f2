"""Which host a task belongs to."""

from __future__ import annotations

from collections import Counter
from itertools import permutations

import pytest

from state_lib.protocol.addresses import HostAddress
from state_lib.protocol.placement import assign, owner_of, rank


def hosts(n: int) -> tuple[HostAddress, ...]:
    return tuple(HostAddress(f"host-{i}", "127.0.0.1", 1000 + i, 2000 + i) for i in range(n))


@pytest.mark.parametrize("n", [1, 2, 3, 5, 8])
@pytest.mark.parametrize("partitions", [1, 4, 7, 64])
def test_balanced_within_one(n: int, partitions: int) -> None:
    counts = Counter(h.id for h in assign("app", partitions, hosts(n)))
    loads = [counts[h.id] for h in hosts(n)]
    assert sum(loads) == partitions
    assert max(loads) - min(loads) <= 1


def test_a_task_keeps_its_host_however_many_follow() -> None:
    whole = assign("app", 64, hosts(3))
    for partition in range(64):
        assert owner_of("app", partition, hosts(3)) == whole[partition]
        assert assign("app", partition + 1, hosts(3)) == whole[: partition + 1]


def test_the_order_of_the_list_does_not_matter() -> None:
    answers = {tuple(h.id for h in assign("app", 16, order)) for order in permutations(hosts(3))}
    assert len(answers) == 1


def test_stable_over_versions() -> None:
    """A change of these moves tasks in a rolling upgrade: hosts would disagree."""
    assert [h.id for h in assign("flights", 6, hosts(3))] == [
        "host-1",
        "host-0",
        "host-2",
        "host-2",
        "host-1",
        "host-0",
    ]


def test_addresses_may_change() -> None:
    moved = tuple(HostAddress(h.id, "10.0.0.1", 7, 8) for h in hosts(3))
    assert [h.id for h in assign("a", 9, moved)] == [h.id for h in assign("a", 9, hosts(3))]


def test_removing_a_host_moves_its_own_first_choices_only() -> None:
    for partition in range(32):
        before = rank("app", partition, hosts(4))
        gone = before[-1]
        after = rank("app", partition, [h for h in hosts(4) if h != gone])
        assert after == before[:-1]


def test_applications_are_spread_differently() -> None:
    firsts = {rank(f"app-{i}", 0, hosts(4))[0].id for i in range(64)}
    assert len(firsts) == 4
