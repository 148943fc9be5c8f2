"""A processor's run over a task in this process, on entries as Spark would bring them. No JVM."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark import cloudpickle
from pyspark.sql import Row

from state_lib.errors import (
    ProcessorUnready,
    Unavailable,
)
from state_lib.executor.exchange import exchange as exchanged
from state_lib.executor.plan import BatchPlan, ExchangePlan
from state_lib.executor.process import run, timers
from state_lib.executor.process.given import Given, InitialRows
from state_lib.executor.process.pace import Pace
from state_lib.executor.process.run import Told
from state_lib.protocol.marker import NO_INITIAL, CommitHeader
from state_lib.protocol.positions import Positions
from state_lib.testing.tasks import EPOCH
from tests.support.entries import ROWS, SOURCES, entries
from tests.support.processors import Counting, Doing
from tests.support.ran import SOURCES_ORDER, World, processor, total


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with closing(World(tmp_path)) as made:
        yield made


def test_rows_then_timers(world: World) -> None:
    table = entries(("b", 1, 7, 0, 0), ("a", 2, 9, 0, 1), ("a", 3, 8, 1, 0))
    assert world.run(table, 3).due == {"eventtime": 5}
    assert world.state() == {b"a": 5, b"b": 1}
    assert world.outputs() == [
        (b"a", "a@3", 5, 9), (b"b", "b@3", 1, 7), (b"b", "b", -1, 1),
    ]  # fmt: skip
    assert world.run(None, 5).due == {}
    assert world.outputs()[3:] == [(b"a", "a", -5, 5)]
    assert world.run(None, 6) == Told()


def test_reads_are_as_many_as_pages_however_many_keys_there_are(world: World) -> None:
    """Values are fetched ahead: of rows at once, of due timers by the page. A batch reads both."""

    def says(self: Any, key: Any, *_: Any) -> Any:
        yield Row(k=key[0], x=self.n.get()[0])

    asked = {"n": lambda handle, name: handle.getValueState(name, "x BIGINT")}
    code = cloudpickle.dumps(Doing(asked, total, says))
    many, found = 500, list[Counter[str]]()
    rows = [(f"k{number:03}", 1, 7, 0, number) for number in range(many)]
    for table, clock in ((entries(*rows), 0), (entries(*rows), 0), (None, 9)):
        world.reads.clear()
        world.run(table, clock, code=code)
        found.append(Counter(world.reads))
    assert world.state() == {key.encode(): 2 for key, *_ in rows}
    assert len(world.outputs()) == many * 2 + many * 2, "of rows, and of timers at 1 and at 2"
    assert [one["p-n"] for one in found[:2]] == [1, 1]
    pages = found[2]["p-timers"]
    assert pages < 10
    assert found[2]["p-n"] <= pages


def test_timers_beyond_what_one_commit_runs_come_with_the_next(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(timers, "MOST", 2)
    rows = [(key, x, 7, 0, x) for key, x in (("a", 4), ("b", 5), ("c", 6), ("d", 20), ("e", 5))]
    told = world.run(entries(*rows), 3)
    assert (told.due, told.overdue) == ({"eventtime": 4}, False)
    world.outputs_seen = len(world.outputs())
    assert world.tick(9) == ([("a", -4), ("b", -5)], {"eventtime": 5}, True)
    assert world.tick(9) == ([("e", -5), ("c", -6)], {"eventtime": 20}, False)
    assert world.tick(9) == ([], {"eventtime": 20}, False)


def test_a_processor_that_is_slow_is_named(world: World) -> None:
    """Else its exchange ends by its time, as if the host were away."""
    with pytest.raises(ProcessorUnready, match="'p' takes too long on task 0: 1 calls"):
        world.run(entries(("a", 1, 7, 0, 0)), 3, pace=Pace(0, 0.0))
    assert world.state() == {}


def test_while_a_processor_works_nobody_waits_for_the_host(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit, failed = world.tasks.commit, list[int]()

    def aborts_once(partition: int, exchange: Any, header: CommitHeader) -> Any:
        if not failed:
            failed.append(header.batch_number)
            raise Unavailable("the transaction was aborted")
        return commit(partition, exchange, header)

    def slow(*_: Any) -> Any:
        time.sleep(1.0)
        return iter(())

    monkeypatch.setattr(world.tasks, "commit", aborts_once)
    table = entries(("a", 1, 7, 0, 0))
    table = table.append_column("n", pa.array([1] * len(table), pa.int64()))
    asked = {"n": lambda handle, name: handle.getValueState(name, "x BIGINT")}
    made = processor(code=cloudpickle.dumps(Doing(asked, slow)))
    batch = BatchPlan(EPOCH, 1, Positions(), SOURCES, 3, 5, 0, {}, recorded=7, batch_time=5)
    plan = ExchangePlan("app", 1, (), batch, (), None, 60.0, patience_s=0.5, processors=(made,))
    marker = exchanged(plan, 0, table, world.tasks)
    assert (marker.batch_number, failed) == (1, [1])


def test_the_grace_puts_timers_off(world: World) -> None:
    assert world.run(entries(("a", 4, 7, 0, 0)), 5, grace_ms=3).due == {"eventtime": 7}
    assert world.run(None, 7, grace_ms=3).due == {}


def test_a_tick_is_taken_once_whatever_its_number(world: World) -> None:
    batch = BatchPlan(EPOCH, 1, Positions(), Positions(), 3, 5, 0, {}, recorded=7, tick=True)
    batch = replace(batch, batch_time=5)
    plan = ExchangePlan("app", 1, (), batch, (), None, 5.0, processors=(processor(),))

    def taken(n: int, recorded: int) -> tuple[int, int]:
        again = replace(plan, batch=replace(batch, batch_number=n, recorded=recorded))
        marker = exchanged(again, 0, None, world.tasks)
        return marker.batch_number, marker.recorded

    assert [taken(1, 7), taken(2, 7), taken(2, 8)] == [(1, 7), (1, 7), (2, 8)]
    plan = replace(plan, batch=replace(batch, recorded_in="made anew"))
    batch = plan.batch
    assert taken(3, 0) == (3, 0), "of another progress topic"
    assert world.tasks[0].marker.initial == {"p": NO_INITIAL}, "it has begun without"


def beginning(n: int) -> ExchangePlan:
    """To take an initial state, with that number."""
    asked = {"n": lambda handle, name: handle.getValueState(name, "x BIGINT")}
    code = cloudpickle.dumps(Counting(asked, total))
    made = processor(code=code, initial=ROWS.json())
    batch = BatchPlan(EPOCH, n, Positions(), Positions(), 3, 5, 0, {}, batch_time=5)
    return ExchangePlan("app", 1, (), batch, (), None, 5.0, processors=(made,), initial="p")


def initial_table(names: str) -> pa.Table:
    """A row for each letter."""
    rows = pa.struct([("k", pa.string()), ("x", pa.int64())])
    return pa.table(
        {
            "kind": pa.array([0] * len(names), pa.int32()),
            "key": pa.array([n.encode() for n in names], pa.binary()),
            "row": pa.array([{"k": n, "x": 1} for n in names], rows),
        }
    )


def test_a_large_initial_state_is_taken_in_parts(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "MOST_KEYS", 2)
    commit = world.tasks.commit

    def begin(n: int) -> Any:
        return exchanged(beginning(n), 0, initial_table("eabadc"), world.tasks)

    def killed(partition: int, exchange: Any, header: CommitHeader) -> Any:
        if header.batch_number == 2:
            raise KeyboardInterrupt
        return commit(partition, exchange, header)

    with monkeypatch.context() as killing:
        killing.setattr(world.tasks, "commit", killed)
        with pytest.raises(KeyboardInterrupt):
            begin(1)
    half = world.tasks[0].marker
    assert (half.batch_number, half.begun) == (1, {"p": {"key": b"b".hex(), "rows": 3}})
    assert (half.initial, world.state()) == ({}, {b"a": 2, b"b": 1})
    after = begin(5)
    assert (after.batch_number, after.initial, after.begun) == (6, {"p": 6}, {})
    assert world.state() == {b"a": 2, b"b": 1, b"c": 1, b"d": 1, b"e": 1}
    assert begin(6) == after, "a copy of Spark's task"


def test_an_initial_state_is_sorted_once_for_all_its_parts(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[InitialRows] = []

    class Noted(InitialRows):
        def __init__(self, *of: Any) -> None:
            super().__init__(*of)
            made.append(self)

    monkeypatch.setattr(run, "MOST_KEYS", 1)
    monkeypatch.setattr("state_lib.executor.process.given.InitialRows", Noted)
    marker = exchanged(beginning(1), 0, initial_table("abc"), world.tasks)
    assert (marker.batch_number, marker.initial, len(made)) == (3, {"p": 3}, 1)


def test_rows_come_in_order() -> None:
    rows = [("b", 0, 5, 0, 0), ("a", 1, 6, 1, 0), ("a", 2, 5, 2, 7), ("a", 3, 5, 2, 3)]
    rows += [("a", 4, 5, 1, 9), ("a", 5, 5, 0, 9)]
    given = Given(entries(*rows), 0, processor(), SOURCES_ORDER)
    groups = list(given.groups())
    assert [(g.key, g.time_ms) for g in groups] == [(b"a", 6), (b"b", 5)]
    found = [row.x for row in given.rows(groups[0])]
    rank = sorted(range(3), key=lambda number: SOURCES_ORDER[number])
    of_source = {2: [3, 2], 1: [4], 0: [5]}
    assert found == [x for number in rank for x in of_source[number]] + [1]


def test_places_within_a_record_count_last() -> None:
    table = entries(("a", 1, 5, 0, 0), ("a", 2, 5, 0, 0), ("a", 3, 5, 0, 0), explodes=1)
    backwards = table.take(pa.array([2, 0, 3, 1]))
    given = Given(backwards, 0, processor(explodes=1), SOURCES_ORDER)
    (group,) = given.groups()
    assert [row.x for row in given.rows(group)] == [1, 2, 3]
