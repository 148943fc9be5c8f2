"""Runs a benchmark: its contenders in turn, round by round, on one broker."""

from __future__ import annotations

from collections.abc import Collection

from benchmarks.measure import Benchmark, Differ, Measurement, check_same
from benchmarks.report import number
from benchmarks.world import World


def run(
    benchmark: Benchmark, world: World, rounds: int, only: Collection[str] = ()
) -> list[dict[str, Measurement]]:
    """Measure every contender once a round, first the one, then the other.

    Args:
        benchmark: what to run.
        world: where.
        rounds: how often.
        only: contenders; all of them if empty.

    Raises:
        Differ: the contenders of a round came to different results.
    """
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
            runs[name] = contender(world)
            value = f"{number(runs[name].value)} {benchmark.unit}"
            world.say(f"{benchmark.name}, round {n + 1} of {rounds}, {name}: {value}")
        try:
            check_same(runs)
        except Differ as error:
            raise Differ(f"{benchmark.name}, round {n + 1}: {error}") from None
        results.append({name: runs[name] for name in names})
    return results
