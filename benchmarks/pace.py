"""Small commits to every task at a steady pace, and how long each of them waited."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Sequence
from statistics import median
from typing import NamedTuple, Self

import pyarrow as pa

from benchmarks.committer import Committer

END_S = 60.0


class Commit(NamedTuple):
    """When it was due and when it was acknowledged, in s of ``time.monotonic()``."""

    due: float
    acknowledged: float

    @property
    def waited(self) -> float:
        """Seconds."""
        return self.acknowledged - self.due


class Pace:
    """Inside ``with``, a thread per task commits every ``period_s``.

    A commit that comes late moves those after it, so that one stall counts once.

    Args:
        committer: who has claimed all tasks.
        parts: for each task what its commits write, in turn: sorted keys.
        period_s: from one commit of a task to the next.

    Attributes:
        commits: so far, of all tasks.
    """

    def __init__(
        self, committer: Committer, parts: Sequence[Sequence[pa.BinaryArray]], period_s: float
    ) -> None:
        self._committer, self._period_s = committer, period_s
        self._lock, self._stop = threading.Lock(), threading.Event()
        self._failed: list[Exception] = []
        self.commits: list[Commit] = []
        self._threads = [
            threading.Thread(target=self._run, args=[task, keys], daemon=True)
            for task, keys in enumerate(parts)
        ]

    def __enter__(self) -> Self:
        """Start."""
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """End; raises what a commit raised."""
        self._stop.set()
        deadline = time.monotonic() + END_S
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        if self._failed:
            raise self._failed[0]

    def check(self) -> None:
        """Raise what a commit raised."""
        if self._failed:
            raise self._failed[0]

    def _run(self, task: int, parts: Sequence[pa.BinaryArray]) -> None:
        due = time.monotonic() + self._period_s * task / len(self._threads)
        try:
            for keys in itertools.cycle(parts):
                if self._stop.wait(max(0.0, due - time.monotonic())):
                    return
                with self._lock:
                    self._committer.n += 1
                    n = self._committer.n
                self._committer.commit(task, keys, n=n)
                acknowledged = time.monotonic()
                self.commits.append(Commit(due, acknowledged))
                due = max(due + self._period_s, acknowledged)
        except Exception as error:  # noqa: BLE001 - raised again by who waits
            self._failed.append(error)


class Stall(NamedTuple):
    """What commits waited before and while something was done, in s."""

    usual: float
    """Median before."""
    worst_before: float
    meanwhile: float
    """Median of those that were due or under way meanwhile."""
    worst: float
    """The longest of them."""

    @property
    def seconds(self) -> float:
        """How much longer than usual the longest one waited."""
        return max(0.0, self.worst - self.usual)


def stall(commits: Sequence[Commit], started: float, ended: float) -> Stall:
    """Compare the commits between two times with those before.

    Raises:
        RuntimeError: there are none before, or none in between.
    """
    before = [c.waited for c in commits if c.acknowledged <= started]
    meanwhile = [c.waited for c in commits if c.acknowledged > started and c.due < ended]
    if not before or not meanwhile:
        raise RuntimeError(
            f"{len(before)} commits before and {len(meanwhile)} in {ended - started:.1f} s: too few"
        )
    return Stall(median(before), max(before), median(meanwhile), max(meanwhile))
