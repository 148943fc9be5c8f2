"""Which recorded batches stand, after crashes, zombies and aligned repeats."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise

import orjson
from hypothesis import given
from hypothesis import strategies as st

from state_lib.changelog.progress import Alike, Recorded, effective, repeats, ticks
from state_lib.executor.plan import BatchPlan
from state_lib.kafka import Partition
from state_lib.protocol.positions import Positions

P = ("t", 0)
Q = ("t", 1)


def batch(epoch: int, n: int, start: int, end: int, clock: int = 0) -> Recorded:
    return Recorded(epoch, n, {P: start, Q: start}, {P: end, Q: end}, clock, 0)


def spans(records: list[Recorded]) -> list[tuple[int, int, int]]:
    return [(r.epoch, r.from_[P], r.to[P]) for r in effective(records)]


def test_a_plain_run_stands_as_written() -> None:
    assert spans([batch(1, 1, 0, 10), batch(1, 2, 10, 20)]) == [(1, 0, 10), (1, 10, 20)]


def test_a_batch_that_nobody_committed_is_overridden_by_its_successor() -> None:
    assert spans([batch(1, 1, 0, 10), batch(1, 2, 10, 20), batch(2, 1, 10, 35)]) == [
        (1, 0, 10),
        (2, 10, 35),
    ]


def test_an_aligned_batch_replaces_its_original() -> None:
    records = [batch(1, 1, 0, 10, 5), batch(1, 2, 10, 20, 7), batch(2, 1, 10, 20, 7)]
    assert [(r.epoch, r.stream_time_ms) for r in effective(records)] == [(1, 5), (2, 7)]


def test_a_zombie_that_writes_after_its_successor_does_not_count() -> None:
    records = [batch(1, 1, 0, 10), batch(2, 1, 10, 30), batch(1, 2, 10, 20)]
    assert spans(records) == [(1, 0, 10), (2, 10, 30)]


def test_a_zombie_that_writes_last_does_not_count_wherever_reading_begins() -> None:
    """Also where its batch reaches further, and what its successor began with is not read."""
    records = [batch(5, 1, 0, 10), batch(5, 2, 10, 20), batch(5, 3, 20, 30), batch(4, 7, 0, 100)]
    assert spans(records) == [(5, 0, 10), (5, 10, 20), (5, 20, 30)]
    assert spans(records[1:]) == [(5, 10, 20), (5, 20, 30)]


def test_ticks_cover_nothing() -> None:
    assert spans([batch(1, 1, 0, 10), batch(1, 2, 10, 10), batch(1, 3, 10, 20)]) == [
        (1, 0, 10),
        (1, 10, 20),
    ]


def test_a_driver_that_died_twice_is_overridden_from_where_the_third_begins() -> None:
    records = [batch(1, 1, 0, 10), batch(1, 2, 10, 20), batch(2, 1, 10, 20), batch(3, 1, 10, 20)]
    assert spans(records) == [(1, 0, 10), (3, 10, 20)]


def test_an_aligned_batch_leaves_what_follows_it() -> None:
    """A task that was away for two batches: the first is repeated, then the driver dies."""
    again = Recorded(2, 1, {P: 0, Q: 0}, {P: 10, Q: 10}, 5, 0, aligned=True)
    records = [batch(1, 1, 0, 10, 5), batch(1, 2, 10, 20, 7), again]
    assert spans(records) == [(2, 0, 10), (1, 10, 20)]


def test_new_partitions_do_not_hide_earlier_batches() -> None:
    first = Recorded(1, 1, {P: 0}, {P: 10}, 0, 0)
    second = Recorded(1, 2, {P: 10, Q: 5}, {P: 20, Q: 9}, 0, 0)
    assert effective([first, second]) == [first, second]


def of_before(records: list[Recorded]) -> list[Recorded]:
    """As `effective` was written first: clear, and quadratic."""

    def reaches(record: Recorded, positions: Mapping[Partition, int]) -> bool:
        both = record.from_.keys() & positions.keys()
        return all(record.from_[p] >= positions[p] for p in both)

    chain: list[Recorded] = []
    for number, record in enumerate(records):
        late = any(before.epoch > record.epoch for before in records[:number])
        if record.from_ != record.to and not late:
            before = [r for r in chain if not reaches(r, record.from_)]
            after = [r for r in chain if record.aligned and reaches(r, record.to)]
            chain = [*before, record, *after]
    return chain


@st.composite
def logs(draw: st.DrawFn) -> list[Recorded]:
    """Drivers that go on from anywhere before the end, repeat batches, and write too late."""
    log: list[Recorded] = []
    edges = [0]
    for epoch in range(1, draw(st.integers(2, 5))):
        at = draw(st.sampled_from(edges))
        edges = [e for e in edges if e <= at]
        if epoch > 1 and draw(st.booleans()):
            ends = [r.to[P] for r in effective(log) if r.from_[P] == at]
            log += [replace(batch(epoch, 1, at, end), aligned=True) for end in ends]
            edges += ends
            at = (ends or [at])[-1]
        for n in range(2, draw(st.integers(2, 5))):
            end = at + draw(st.integers(0, 3)) * 10
            log.insert(
                len(log) - draw(st.integers(0, 1)) * (len(log) > 0), batch(epoch, n, at, end)
            )
            at = end
            edges.append(at)
    return log


@given(logs())
def test_it_is_what_it_was_when_it_was_quadratic(log: list[Recorded]) -> None:
    assert effective(log) == of_before(log)


def test_a_repeat_points_at_the_first_record() -> None:
    """What follows a batch lies behind its first record, and maybe before a repeat of it."""
    at, to = Positions({("t", 0): 0}), Positions({("t", 0): 9})
    plan = BatchPlan(2, 1, at, to, 1, 2, 3, {}, (1,), "code", 17, repeated=True)
    again = Recorded.from_json(orjson.loads(orjson.dumps(plan.record())), 40)
    assert (again.offset, again.aligned, again.code) == (17, True, "code")
    first = replace(plan, recorded=-1, repeated=False)
    assert Recorded.from_json(orjson.loads(orjson.dumps(first.record())), 40).offset == 40


def test_covers_asks_for_the_batch_that_comes_next() -> None:
    record = batch(1, 2, 10, 20)
    assert record.covers({P: 10, Q: 10})
    assert not record.covers({P: 20, Q: 20})
    assert not record.covers({P: 0, Q: 0})


def test_the_batches_that_lead_from_here_to_there() -> None:
    chain = [batch(1, n + 1, n * 10, n * 10 + 10) for n in range(4)]
    there = {P: 30, Q: 30}
    assert repeats({P: 10, Q: 10}, there, chain) == (chain[1:3], there)
    assert repeats(there, there, []) == ([], there)
    assert repeats({P: 0, Q: 0}, {P: 25, Q: 25}, chain)[1] == {P: 25, Q: 25}
    gap = [chain[0], chain[2]]
    assert repeats({P: 0, Q: 0}, there, gap) == (chain[:1], {P: 10, Q: 10}), "and no further"


def test_what_a_batch_did_not_know_is_left_to_the_batches_that_do() -> None:
    """A partition that is newer than the first of them."""
    first = Recorded(1, 1, {P: 0}, {P: 10}, 0, 0)
    second = Recorded(1, 2, {P: 10, Q: 0}, {P: 20, Q: 9}, 0, 0)
    third = Recorded(1, 3, {P: 20, Q: 9}, {P: 30, Q: 15}, 0, 0)
    chain, there = [first, second, third], {P: 30, Q: 15}
    assert repeats({P: 0, Q: 0}, there, chain) == (chain, there)
    assert repeats({P: 0}, {P: 10, Q: 7}, [first]) == ([first], {P: 10, Q: 7}), "nobody read it"


def test_a_repeated_batch_numbers_the_sources_as_it_did() -> None:
    """Which task has a row without a key goes by these numbers."""
    early, new, late = ("a", 0), ("a", 1), ("b", 0)
    at, to = Positions({early: 0, new: 0, late: 0}), Positions({early: 5, new: 0, late: 7})
    numbered = (early, late)
    plan = BatchPlan(2, 9, at, to, 1, 2, 3, {}, (1,), repeated=True, numbered=numbered)
    assert plan.sources() == [early, late, new]
    assert replace(plan, numbered=()).sources() == [early, new, late]
    again = Recorded.from_json(orjson.loads(orjson.dumps(plan.record())), 40)
    assert (again.from_, again.to) == ({early: 0, late: 0}, {early: 5, late: 7}), "and once more"


def test_ticks_stand_until_a_newer_driver_has_spoken() -> None:
    def tick(epoch: int, n: int, at: int, *, aligned: bool = False) -> Recorded:
        return replace(batch(epoch, n, at, at), offset=n, tick=True, aligned=aligned)

    begin = batch(2, 0, 10, 10)
    records = [
        batch(1, 1, 0, 10), tick(1, 2, 10), tick(1, 3, 10), begin, tick(1, 4, 10),
        tick(2, 5, 10, aligned=True), tick(2, 6, 10),
    ]  # fmt: skip
    assert [(t.epoch, t.batch_number) for t in ticks(records)] == [(1, 2), (1, 3), (2, 6)]
    assert spans(records) == [(1, 0, 10)]
    said = replace(BatchPlan(1, 2, Positions(), Positions(), 0, 0, 0, {}), tick=True).record()
    assert Recorded.from_json(orjson.loads(orjson.dumps(said)), 40).tick


def test_processing_time_is_on_record_beside_wall_time() -> None:
    """A clock that leapt once decides nothing for ever: who is too early is judged by the wall."""
    leapt = BatchPlan(
        1, 2, Positions(), Positions({("t", 0): 5}), 0, 1000, 10, {}, batch_time=9_000
    )
    found = Recorded.from_json(orjson.loads(orjson.dumps(leapt.record())), 7)
    assert (found.now, found.batch_time) == (1000, 9_000)


def test_without_processors_a_record_is_as_it_was() -> None:
    plain = BatchPlan(1, 2, Positions(), Positions({("t", 0): 5}), 0, 1000, 10, {})
    assert plain.record().keys() == {
        "epoch", "n", "from", "to", "clock", "now", "max_future_ms", "code", "limits", "tasks",
        "parked", "recorded",
    }  # fmt: skip


def test_what_is_equal_in_many_records_is_kept_once() -> None:
    """A task that missed a day of a batch a second has 86,400 of them."""
    alike, records = Alike(), [batch(1, n, 10 * n, 10 * n + 10) for n in range(4)]
    said = [
        {
            "epoch": 1, "n": r.batch_number, "clock": 0, "now": 0,
            "from": Positions(r.from_).to_json(), "to": Positions(r.to).to_json(),
            "max_future_ms": 1, "tasks": None, "limits": {"count": 9 if r.batch_number < 3 else 8},
        }
        for r in records
    ]  # fmt: skip
    read = [Recorded.from_json(orjson.loads(orjson.dumps(s)), 0, alike) for s in said]
    assert [(r.from_, r.to) for r in read] == [(r.from_, r.to) for r in records]
    assert all(one.to is other.from_ for one, other in pairwise(read))
    assert read[0].limits is read[1].limits
    assert (read[2].limits, read[3].limits) == ({"count": 9}, {"count": 8})
    partitions = [p for r in read for p in r.to]
    assert len({id(p) for p in partitions}) == 2
