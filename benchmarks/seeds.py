"""Applications that hold many distinct keys: made once, used by several benchmarks."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks import sources
from benchmarks.committer import Committer, Ids
from benchmarks.contenders.engine import Query
from benchmarks.contenders.holdfast import Holdfast
from benchmarks.measure import Differ
from benchmarks.world import World

UPDATE_CHUNK = 4_000


@dataclass
class Seed:
    """An application that holds ``keys`` distinct keys, each with a count.

    Its source is empty, so that Kafka Streams under the same id has nothing to do but restore.

    Attributes:
        holdfast: stopped; its home holds the state.
        counts: what the store must hold, by number of the key.
    """

    query: Query
    keys: int
    holdfast: Holdfast
    counts: Ids

    def committer(self, world: World, holdfast: Holdfast | None = None) -> Committer:
        """Who commits to it; ``holdfast`` if not its own."""
        return Committer(world, holdfast or self.holdfast, self.query)

    def update(self, committer: Committer, rate: int, seconds: float) -> int:
        """Write to random keys, ``rate`` a second at most, for ``seconds``; returns how many."""
        rng = np.random.default_rng()
        started, done = time.monotonic(), 0
        while (passed := time.monotonic() - started) < seconds:
            due = int(passed * rate) - done
            if due < min(rate, UPDATE_CHUNK):
                time.sleep(0.01)
                continue
            self.write(committer, np.unique(rng.integers(0, self.keys, due)))
            done += due
        return done

    def write(self, committer: Committer, ids: Ids) -> None:
        """Write a new count to some keys."""
        count = int(self.counts.max()) + 1
        committer.write(ids, count)
        self.counts[ids] = count

    def check(self, outcome: Mapping[str, Any]) -> None:
        """Raise Differ if a store does not hold what was committed."""
        expected = {"entries": self.keys, "total": int(self.counts.sum())}
        seen = {name: outcome[name] for name in expected}
        if seen != expected:
            raise Differ(f"{self.query.app} must hold {expected}, it holds {seen}")


def seeded(world: World, keys: int) -> Seed:
    """The application with so many keys; made at first use."""
    if keys not in world.seeds:
        app = world.name("bench-seed")
        query = Query(app, world.name("empty"))
        holdfast = Holdfast(world, query)
        committer = Committer(world, holdfast, query)
        committer.create()
        started = time.monotonic()
        holdfast.start_hosts()
        try:
            committer.claim()
            committer.write(sources.ids("distinct", keys))
        finally:
            committer.close()
            holdfast.stop()
        world.say(f"{keys:,} keys in {app}: {time.monotonic() - started:.1f} s")
        world.seeds[keys] = Seed(query, keys, holdfast, np.ones(keys, np.int64))
    return world.seeds[keys]
