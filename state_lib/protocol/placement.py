"""Which host a task belongs to: rendezvous hashing, which everybody computes alike."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import xxhash

from state_lib.protocol.addresses import HostAddress


def rank(app: str, partition: int, hosts: Sequence[HostAddress]) -> list[HostAddress]:
    """Hosts by preference for a task, best first (Thaler & Ravishankar, 1998)."""

    def weight(host: HostAddress) -> tuple[int, str]:
        return xxhash.xxh3_64_intdigest(f"{app}/{partition}@{host.id}".encode()), host.id

    return sorted(hosts, key=weight, reverse=True)


def owner_of(app: str, partition: int, hosts: Sequence[HostAddress]) -> HostAddress:
    """The host that should own a task."""
    return assign(app, partition + 1, tuple(hosts))[partition]


@lru_cache(maxsize=4096)
def assign(app: str, partitions: int, hosts: tuple[HostAddress, ...]) -> tuple[HostAddress, ...]:
    """The owner of each partition: the best-ranked host that is not yet full.

    Plain rendezvous hashing of four tasks over two hosts often gives one of them three; with a
    bound of ``ceil((p + 1) / hosts)`` at partition *p* no host has more than its share, and the
    answer for a partition does not depend on how many follow it.
    """
    owners: list[HostAddress] = []
    counts = {h.id: 0 for h in hosts}
    for partition in range(partitions):
        bound = partition // len(hosts) + 1
        owner = next(h for h in rank(app, partition, hosts) if counts[h.id] < bound)
        counts[owner.id] += 1
        owners.append(owner)
    return tuple(owners)
