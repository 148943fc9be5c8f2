"""Batches that are repeated together leave what they leave one by one, to the byte."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest
from pyspark.sql import DataFrame, SparkSession

from jobs._recompute import judgements
from state_lib.changelog.progress import effective
from state_lib.errors import StateCorrupt, Unjudged
from state_lib.kafka import Kafka
from state_lib.marker import flat
from state_lib.spark import batches as of_batches
from state_lib.spark.batches import Positions
from state_lib.spark.session import read_range
from state_lib.task import held, state_task
from state_lib.task.room import check_disk
from tests.support import chained
from tests.support.chained import KINDS, PARTITIONS, Chained, Feed

Make = Callable[[str], Chained]
BATCHES = 16


@pytest.fixture
def make(spark: SparkSession, kafka: Kafka, name: str, tmp_path: Path) -> Iterator[Make]:
    """Applications over one feed."""
    feed, made = Feed.made(kafka, name, BATCHES), list[Chained]()

    def one(suffix: str) -> Chained:
        job = feed.job(spark, f"{name}-{suffix}")
        made.append(Chained(spark, kafka, job, feed, tmp_path / suffix))
        return made[-1]

    yield one
    for one_made in made:
        one_made.close()


def test_runs_leave_what_single_batches_leave(make: Make) -> None:
    single, together, some = make("a"), make("b"), make("c")
    assert single.align(1) > BATCHES / 2
    assert together.align() == 1
    assert some.align(7) > 2
    expected = single.found()
    assert together.found() == expected
    assert some.found() == expected
    dropped = [m["dropped"] for m in expected["markers"]]
    for reason in ("late:sometimes", "future", "undecodable", "null-key:totals"):
        assert any(reason in d for d in dropped), "else it shows nothing"
    assert expected["letters"]
    before = [(r.from_, r.to, r.clock, r.now, r.max_future_ms, r.offset) for r in _chain(single)]
    for one in (together, some):
        after = [(r.from_, r.to, r.clock, r.now, r.max_future_ms, r.offset) for r in _chain(one)]
        assert after == before, "each batch is on record as it was"
        assert judgements(one.judged()) == judgements(single.judged())


def test_each_row_is_judged_by_what_is_on_record_of_it(make: Make) -> None:
    """Of every topic: late and too early by the clock and the limit of the batch that it was in."""
    together = make("a")
    assert together.align() == 1
    late, future = together.late_and_future()
    assert (late, future) == together.late_and_future_by_record()
    assert all(late.values()), "else it shows nothing"
    assert all(future.values())


@pytest.mark.parametrize("kind", KINDS)
def test_a_row_that_no_batch_has_fails_the_run(
    make: Make, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """It is in no list of clocks. Nobody commits, and it is said which row it was."""
    single, together = make("a"), make("b")
    single.align(1)
    topic, bounds = together.feed.topic(kind), list[Positions]()

    def beyond(spark: SparkSession, options: dict[str, str], from_: str, to: str) -> DataFrame:
        said = orjson.loads(to)
        bounds.append(flat(said))
        said[topic]["1"] += 1
        return read_range(spark, options, from_, orjson.dumps(said).decode())

    before = together.found()
    with monkeypatch.context() as patched:
        patched.setattr(chained, "read_range", beyond)
        with pytest.raises(Unjudged, match="none of the recorded batches") as failed:
            together.align(5)
    details, offset = failed.value.details, bounds[0][topic, 1]
    assert (details["topic"], details["partition"], details["offset"]) == (topic, 1, offset)
    assert details["recorded"] == [_chain(together)[0].offset, _chain(together)[4].offset]
    assert f"batch {details['batches'][0]} to {details['batches'][1]} of epoch" in str(failed.value)
    assert together.found() == before
    together.align()
    assert together.found() == single.found()


def _chain(one: Chained) -> list[Any]:
    return effective(one.log.read())


def test_a_driver_that_dies_after_it_recorded_a_run(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    single, together = make("a"), make("b")
    single.align(1)

    def dies(name: str) -> None:
        if name == "driver.after_run_record":
            raise KeyboardInterrupt

    with monkeypatch.context() as dying:
        dying.setattr(of_batches, "failpoint", dies)
        with pytest.raises(KeyboardInterrupt):
            together.align(9)
    assert together.align() == 1
    assert together.found() == single.found()


def test_a_task_that_misses_a_run(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its disk is full; the others stand at the end of the run, and it at the begin."""
    single, together = make("a"), make("b")
    single.align(1)

    def full(name: str, path: Path, size: int) -> None:
        check_disk(name, path, size + (1 << 60 if name.endswith("/1") else 0))

    with monkeypatch.context() as filled:
        filled.setattr(state_task, "check_disk", full)
        together.align(15)
    at = [together.manager.task(together.name, p).marker.positions for p in range(PARTITIONS)]
    assert at[0] == at[2] != at[1]
    together.align()
    assert together.found() == single.found()


def test_a_host_that_dies_in_the_middle_of_a_run(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kafka has the commit, and the store has not."""
    single, together = make("a"), make("b")
    single.align(1)
    passed: list[str] = []

    def dies(name: str) -> None:
        if name == "commit.after_kafka":
            passed.append(name)
            if len(passed) in (2, 5):
                raise StateCorrupt("dies")

    with monkeypatch.context() as dying:
        dying.setattr(held, "failpoint", dies)
        together.align(9)
    assert len(passed) > 5
    assert together.found() == single.found()
