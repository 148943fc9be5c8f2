"""Runs a benchmark: its contenders in turn, round by round, on one broker."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Collection, Iterator

from benchmarks.measure import Benchmark, Differ, Measurement, check_same
from benchmarks.report import number
from benchmarks.world import World


def _told(run: Measurement, unit: str) -> str:
    facts = "".join(f", {name} {number(value)}" for name, value in run.facts.items())
    return f"{number(run.value)} {unit}{facts}"


class TooLong(Exception):
    """A step of a benchmark did not end within its time."""


def run(
    benchmark: Benchmark,
    world: World,
    rounds: int,
    only: Collection[str] = (),
    limit_s: float = 0,
) -> list[dict[str, Measurement]]:
    """Measure every contender once a round, first the one, then the other.

    Args:
        benchmark: what to run.
        world: where.
        rounds: how often.
        only: contenders; all of them if empty.
        limit_s: time for the preparation, and for each run of a contender; 0 is no limit.

    Raises:
        Differ: the contenders of a round came to different results.
        TooLong: naming the step that was ended.
    """
    with limit(limit_s, f"{benchmark.name}: its preparation"):
        benchmark.prepare(world)
    every = benchmark.contenders().items()
    contenders = [(name, c) for name, c in every if not only or name in only]
    names = [name for name, _ in contenders]
    results = []
    for n in range(rounds):
        # Every other round backwards: who comes later must not always be the same.
        order = contenders if n % 2 == 0 else contenders[::-1]
        runs = {}
        for name, contender in order:
            with limit(limit_s, f"{benchmark.name}, round {n + 1}, {name}"):
                runs[name] = contender(world)
            told = _told(runs[name], benchmark.unit)
            world.say(f"{benchmark.name}, round {n + 1} of {rounds}, {name}: {told}")
        try:
            check_same(runs)
        except Differ as error:
            raise Differ(f"{benchmark.name}, round {n + 1}: {error}") from None
        results.append({name: runs[name] for name in names})
    return results


@contextlib.contextmanager
def limit(seconds: float, what: str) -> Iterator[None]:
    """Raise TooLong in this, the main, thread when the time is over; 0 is no limit."""

    def ring(*_: object) -> None:
        raise TooLong(
            f"{what} took longer than {seconds:g} s: look at the machine's load, or give it more "
            "time by --limit-s"
        )

    if not seconds:
        yield
        return
    before = signal.signal(signal.SIGALRM, ring)
    timer = signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, *timer)
        signal.signal(signal.SIGALRM, before)
