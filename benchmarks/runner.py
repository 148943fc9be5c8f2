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

    A contender that fails does not end the others: it is not in the result.

    Args:
        benchmark: what to run.
        world: where.
        rounds: how often.
        only: contenders; all of them if empty.
        limit_s: time for the preparation, and for each run of a contender; 0 is no limit.

    Raises:
        Differ: the contenders of a round came to different results.
        TooLong: the preparation took too long.
        Exception: the first one, where every contender failed.
    """
    with limit(limit_s, f"{benchmark.name}: its preparation"):
        benchmark.prepare(world)
    every = benchmark.contenders().items()
    contenders = [(name, c) for name, c in every if not only or name in only]
    results, failed = list[dict[str, Measurement]](), dict[str, Exception]()
    for n in range(rounds):
        # Every other round backwards: who comes later must not always be the same.
        order = contenders if n % 2 == 0 else contenders[::-1]
        runs = {}
        for name, contender in order:
            if name in failed:
                continue
            what = f"{benchmark.name}, round {n + 1} of {rounds}, {name}"
            try:
                with limit(limit_s, what):
                    runs[name] = contender(world)
            except Exception as error:  # noqa: BLE001 - what ends one does not end the others
                failed[name] = error
                world.seeds.clear()  # what they hold may not be what they should
                world.say(f"{what} failed, its rounds do not count: {error}")
            else:
                world.say(f"{what}: {_told(runs[name], benchmark.unit)}")
        try:
            check_same(runs)
        except Differ as error:
            raise Differ(f"{benchmark.name}, round {n + 1}: {error}") from None
        results.append(runs)
    names = [name for name, _ in contenders if name not in failed]
    if failed and not names:
        raise next(iter(failed.values()))
    return [{name: runs[name] for name in names} for runs in results]


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
