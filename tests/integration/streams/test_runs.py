"""Batches that are repeated together leave what they leave one by one, to the byte."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson
import pytest
from pyspark.sql import DataFrame, SparkSession

from jobs._recompute import Judgement, judgements
from state_lib.changelog.progress import Recorded, effective
from state_lib.errors import StateCorrupt, Unjudged
from state_lib.kafka import Kafka
from state_lib.protocol.positions import Positions
from state_lib.spark import batches as of_batches
from state_lib.spark.session import read_range
from state_lib.task import held, state_task
from state_lib.task.room import check_disk
from tests.support import chained
from tests.support.chained import KINDS, PARTITIONS, Chained, Feed

Make = Callable[[], Chained]
BATCHES = 12


@dataclass(frozen=True)
class OneByOne:
    """A feed, and what its batches leave if each is repeated alone."""

    feed: Feed
    found: dict[str, Any]
    chain: list[Recorded]
    judged: dict[tuple[str, int], list[Judgement]]


@pytest.fixture(scope="module")
def single(spark: SparkSession, kafka: Kafka, tmp_path_factory: pytest.TempPathFactory) -> OneByOne:
    feed = Feed.made(kafka, "runs", BATCHES)
    root = tmp_path_factory.mktemp("single")
    with closing(Chained(spark, kafka, feed.job(spark, "runs-single"), feed, root)) as one:
        assert one.align(1) > BATCHES / 2
        chain = effective(one.log.read())
        return OneByOne(feed, one.found(), chain, judgements(one.judged()))


@pytest.fixture
def make(
    spark: SparkSession, kafka: Kafka, name: str, tmp_path: Path, single: OneByOne
) -> Iterator[Make]:
    """Applications over the same feed."""
    made: list[Chained] = []

    def one() -> Chained:
        job = single.feed.job(spark, f"{name}-{len(made)}")
        made.append(Chained(spark, kafka, job, single.feed, tmp_path / job.id))
        return made[-1]

    yield one
    for each in made:
        each.close()


def test_what_one_by_one_leaves_shows_all_that_is_judged(single: OneByOne) -> None:
    dropped = [m["dropped"] for m in single.found["markers"]]
    for reason in (*chained.LATE.values(), "future", "undecodable", "null-key:totals"):
        assert any(reason in d for d in dropped), reason
    assert single.found["letters"]


@pytest.mark.parametrize(("most", "runs"), [(1000, 1), (5, 3)])
def test_runs_leave_what_single_batches_leave(
    make: Make, single: OneByOne, most: int, runs: int
) -> None:
    together = make()
    assert together.align(most) == runs
    assert together.found() == single.found
    after = [_said(one) for one in effective(together.log.read())]
    assert after == [_said(one) for one in single.chain], "each batch is on record as it was"
    assert judgements(together.judged()) == single.judged


def _said(r: Recorded) -> tuple[object, ...]:
    return (r.from_, r.to, r.stream_time_ms, r.now, r.max_future_ms, r.offset)


def test_each_row_is_judged_by_what_is_on_record_of_it(make: Make) -> None:
    """Of every topic: late and too early by the clock and the limit of the batch that it was in."""
    together = make()
    assert together.align() == 1
    late, future = together.late_and_future()
    assert (late, future) == together.late_and_future_by_record()
    assert all(late.values()), "else it shows nothing"
    assert all(future.values())


def test_a_row_that_no_batch_has_fails_the_run(
    make: Make, single: OneByOne, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is in no list of clocks. Nobody commits, and it is said which row it was."""
    together = make()
    before = together.found()
    for kind in KINDS:
        topic, bounds = single.feed.topic(kind), list[Positions]()

        def beyond(spark: SparkSession, options: dict[str, str], from_: str, to: str) -> DataFrame:
            said = orjson.loads(to)
            bounds.append(Positions.of(said))  # noqa: B023 - it is called within the loop
            said[topic]["1"] += 1  # noqa: B023 - as above
            return read_range(spark, options, from_, orjson.dumps(said).decode())

        with monkeypatch.context() as patched:
            patched.setattr(chained, "read_range", beyond)
            with pytest.raises(Unjudged, match="none of the recorded batches") as failed:
                together.align(5)
        said = failed.value.details
        assert (said["topic"], said["partition"]) == (topic, 1)
        assert said["offset"] == bounds[0][topic, 1]
        first, last = said["batches"]
        assert f"batch {first} to {last} of epoch {said['epoch']}" in failed.value.message
        assert said["recorded"] == [single.chain[0].offset, single.chain[4].offset]
        assert together.found() == before
    together.align()
    assert together.found() == single.found


def test_a_driver_that_dies_after_it_recorded_a_run(
    make: Make, single: OneByOne, monkeypatch: pytest.MonkeyPatch
) -> None:
    together = make()

    def dies(name: str) -> None:
        if name == "driver.after_run_record":
            raise KeyboardInterrupt

    with monkeypatch.context() as dying:
        dying.setattr(of_batches, "failpoint", dies)
        with pytest.raises(KeyboardInterrupt):
            together.align(9)
    assert together.align() == 1
    assert together.found() == single.found


def test_a_task_that_misses_a_run(
    make: Make, single: OneByOne, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its disk is full; the others stand at the end of the run, and it at the begin."""
    together = make()

    def full(name: str, path: Path, size: int) -> None:
        check_disk(name, path, size + (1 << 60 if name.endswith("/1") else 0))

    with monkeypatch.context() as filled:
        filled.setattr(state_task, "check_disk", full)
        together.align()
    at = [together.manager.task(together.name, p).marker.positions for p in range(PARTITIONS)]
    assert at[0] == at[2] != at[1]
    together.align()
    assert together.found() == single.found


def test_a_host_that_dies_in_the_middle_of_a_run(
    make: Make, single: OneByOne, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kafka has the commit, and the store has not."""
    together = make()
    passed: list[str] = []

    def dies(name: str) -> None:
        if name == "commit.after_kafka":
            passed.append(name)
            if len(passed) in (2, 5):
                raise StateCorrupt("dies")

    with monkeypatch.context() as dying:
        dying.setattr(held, "failpoint", dies)
        together.align(5)
    assert len(passed) > 5
    assert together.found() == single.found
