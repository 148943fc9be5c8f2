"""Which batches make a run: the way of a task is the same as one by one, and passes nobody."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from state_lib.changelog.progress import Recorded
from state_lib.driver import runs
from state_lib.driver.runs import Step, run_of
from state_lib.driver.versions import Chain, behind
from state_lib.kafka import Partition

Positions = dict[Partition, int]
PLACES: list[Partition] = [("t", 0), ("t", 1), ("u", 0)]
BOUND = 12


@dataclass
class World:
    """A chain, where tasks stand, and up to where outputs were written."""

    chain: list[Recorded]
    at: list[Positions]
    published: list[Positions]


@st.composite
def worlds(draw: st.DrawFn) -> World:
    sizes = st.tuples(*[st.integers(0, 3)] * len(PLACES))
    edges: list[Positions] = [dict.fromkeys(PLACES, 0)]
    chain: list[Recorded] = []
    clock = 0
    for number, size in enumerate(draw(st.lists(sizes, min_size=1, max_size=12))):
        to = {p: edges[-1][p] + n for p, n in zip(PLACES, size, strict=True)}
        if to == edges[-1]:
            continue
        clock += draw(st.sampled_from((0, 0, 1, -1)))
        code = draw(st.sampled_from(("code", "code", "code", "edited")))
        limits = draw(st.sampled_from(({}, {}, {"store": 1})))
        said = Recorded(1, number, edges[-1], to, clock, 0, code=code, limits=limits)
        said = replace(said, unknown=draw(st.sampled_from(((), (), (), (7,)))))
        chain.append(replace(said, offset=number))
        edges.append(to)
    places = st.lists(st.sampled_from(edges), min_size=1, max_size=4)
    at = draw(places)
    if draw(st.booleans()) and chain:  # one stands within a batch
        one, n = draw(st.tuples(st.sampled_from(chain), st.integers(0, 99)))
        at.append({p: one.from_[p] + n % (one.to[p] - one.from_[p] + 1) for p in PLACES})
    return World(chain, at, draw(places))


def walk(world: World, most: int) -> tuple[list[Positions], list[list[tuple[Step, ...]]]]:
    """As `align` does it; where tasks come to stand, and the runs of each."""
    at = [dict(x) for x in world.at]
    target = {p: max(x[p] for x in (*at, *world.published)) for p in PLACES}
    chain = Chain(lambda: world.chain)
    done = [list[tuple[Step, ...]]() for _ in at]
    for _ in range(1000):
        found = behind(at, chain, [*at, *world.published])
        if found is None or found.batch is None:
            return at, done
        first = Step.of(found.batch, found.positions, target)
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(runs, "MOST_BATCHES", most)
            places = [*at, *world.published]
            steps = run_of(first, chain, target, places, lambda _: BOUND, alone=False)
        for task in found.tasks:
            at[task] = steps[-1].to
            done[task].append(tuple(steps))
    raise AssertionError("it comes to no end")


@given(worlds(), st.integers(2, 20))
def test_the_way_is_the_same(world: World, most: int) -> None:
    at, single = walk(world, 1)
    assert walk(world, most)[0] == at
    ways = walk(world, most)[1]
    for task, way in enumerate(ways):
        steps = list(itertools.chain.from_iterable(way))
        assert steps == list(itertools.chain.from_iterable(single[task]))


@given(worlds())
def test_nobody_is_passed(world: World) -> None:
    _, ways = walk(world, 20)
    for way in ways:
        for run in way:
            middle = run[:-1]
            for place in (*world.at, *world.published):
                assert all(step.to != place for step in middle), "a run ends where another stands"
                if len(run) > 1 and any(run[0].at[p] < place[p] for p in PLACES):
                    assert all(run[-1].to[p] <= place[p] for p in PLACES)


@given(worlds())
def test_what_is_together_is_alike_and_bounded(world: World) -> None:
    _, ways = walk(world, 20)
    for run in itertools.chain.from_iterable(ways):
        assert len({step.batch.code for step in run}) == 1
        assert len({str(step.batch.limits) for step in run}) == 1
        assert len({step.batch.unknown for step in run}) == 1
        assert sorted(step.batch.stream_time_ms for step in run) == [
            step.batch.stream_time_ms for step in run
        ]
        assert len(run) == 1 or sum(step.records for step in run) <= BOUND
        for one, after in itertools.pairwise(run):
            assert after.at == one.to == dict(one.batch.to)


def test_a_long_chain_is_gone_over_once_and_cut() -> None:
    place, size = PLACES[0], 2 * runs.MOST_BATCHES + 1
    batches = [Recorded(1, n, {place: n}, {place: n + 1}, n, 0) for n in range(size)]
    chain, asked, lengths, here = Chain(lambda: batches), list[Positions](), list[int](), {place: 0}
    end = {place: size}
    while here != end:
        batch = chain.next_of(here)
        assert batch is not None
        first, places = Step.of(batch, here, end), [here, end]
        steps = run_of(first, chain, end, places, _hearing(asked), alone=False)
        lengths.append(len(steps))
        assert chain.at == sum(lengths) - 1
        here = steps[-1].to
    assert lengths == [runs.MOST_BATCHES, runs.MOST_BATCHES, 1]
    assert asked == [{place: 0}, {place: runs.MOST_BATCHES}], "once for each run of several"


def _hearing(asked: list[Positions]) -> Callable[[Positions], int]:
    def most(at: Positions) -> int:
        asked.append(at)
        return 10_000

    return most


def test_a_batch_that_knew_other_partitions_is_alone() -> None:
    a, b = PLACES[:2]
    one = Recorded(1, 1, {a: 0}, {a: 1}, 0, 0)
    other = Recorded(1, 2, {a: 1, b: 0}, {a: 2, b: 1}, 0, 0)
    end = {a: 2, b: 1}
    chain = Chain(lambda: [one, other])
    first = chain.next_of({a: 0, b: 0})
    assert first is one
    step = Step.of(one, {a: 0, b: 0}, end)
    assert run_of(step, chain, end, [end], lambda _: 99, alone=False) == [step]
    assert chain.left == 2
    assert not Step.of(replace(one, to={a: 9}), {a: 0, b: 0}, end).is_to_its_end


def test_a_tick_between_two_batches_is_repeated_there() -> None:
    """Who has ticks repeats one by one."""
    place = PLACES[0]
    batches = [Recorded(1, n, {place: n}, {place: n + 1}, 0, 0, offset=10 * n) for n in range(4)]
    tick = Recorded(1, 9, {place: 2}, {place: 2}, 0, 0, offset=15, tick=True)
    chain, end = Chain(lambda: batches, lambda: [tick]), {place: 4}
    here, taken, found = {place: 0}, -1, list[Recorded]()
    while next_one := behind([here, end], chain, (), [taken, 2**63]):
        assert next_one.batch is not None
        first = Step.of(next_one.batch, here, end)
        (step,) = run_of(first, chain, end, [end], lambda _: 99, alone=True)
        found.append(step.batch)
        here, taken = step.to, step.batch.offset
    assert found == [*batches[:2], tick, *batches[2:]]


def test_where_each_is_alone_nobody_asks_how_many_there_may_be() -> None:
    place = PLACES[0]
    batches = [Recorded(1, n, {place: n}, {place: n + 1}, 0, 0, offset=n) for n in range(3)]
    asked, chain, end = list[Positions](), Chain(lambda: batches), {place: 3}
    first = chain.next_of({place: 0})
    assert first is not None
    step = Step.of(first, {place: 0}, end)
    assert run_of(step, chain, end, [end], _hearing(asked), alone=True) == [step]
    assert (chain.left, asked) == (3, [])
