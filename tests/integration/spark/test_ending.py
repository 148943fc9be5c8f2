"""A query whose thread hangs, as in a call to Kafka: who stops it has less patience than others."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from state_lib.config import Settings
from state_lib.errors import Superseded, Unavailable
from state_lib.spark import ending, streaming
from state_lib.spark.streaming import Streaming
from tests.support.declared import counting
from tests.support.waiting import SLOWNESS, until

APP = counting("word_count", {"lines": "counts"}, outputs=("word-counts",))

PATIENCE_S, SOON_S = 1.0, 5.0 * SLOWNESS
pytestmark = pytest.mark.timeout(150)


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streaming, "ENDING_S", PATIENCE_S)


@pytest.fixture
def hanging(spark: SparkSession, tmp_path: Path) -> Iterator[StreamingQuery]:
    """It waits for Python within a batch: that heeds no interrupt."""
    begun, go = threading.Event(), threading.Event()

    def hang(*_: Any) -> None:
        begun.set()
        go.wait(300)

    writer = spark.readStream.format("rate").load().writeStream.foreachBatch(hang)
    query = writer.option("checkpointLocation", str(tmp_path)).start()
    try:
        assert begun.wait(60 * SLOWNESS)
        yield query
    finally:
        go.set()
        ending.halt(query, APP.id, lambda: 60.0)


def stream(spark: SparkSession, stopping: threading.Event) -> Streaming:
    """One that reaches no broker and no task."""
    none: Any = None
    return Streaming(spark, none, none, APP.topology, Settings.load(), stopping)


def soon(what: Callable[[], object], error: type[Exception], match: str) -> None:
    began = time.monotonic()
    with pytest.raises(error, match=match):
        what()
    assert time.monotonic() - began < SOON_S


def test_a_stop_does_not_wait_for_it(spark: SparkSession, hanging: StreamingQuery) -> None:
    stopping = threading.Event()
    stopping.set()
    one = stream(spark, stopping)
    soon(lambda: one._end(hanging), Unavailable, "does not stop: .*TimeoutException")
    assert not one._lock.locked()


def test_a_change_of_size_waits_until_a_stop_comes(
    spark: SparkSession, hanging: StreamingQuery
) -> None:
    """To start the stream anew takes longer than to wait for Kafka; until somebody else waits."""
    stopping = threading.Event()
    one, ended = stream(spark, stopping), list[Exception]()

    def end() -> None:
        try:
            one._end(hanging)
        except Unavailable as error:
            ended.append(error)

    waiting = threading.Thread(target=end, daemon=True)
    waiting.start()
    waiting.join(PATIENCE_S + 1.5)
    assert waiting.is_alive()
    stopping.set()
    until(lambda: ended, SOON_S, "given up")


def test_a_driver_that_was_superseded_says_so(
    spark: SparkSession, hanging: StreamingQuery, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And not that the JVM is gone, for which its supervisor would start it again."""
    monkeypatch.setattr(streaming, "POLL_S", 0.1)
    one = stream(spark, threading.Event())

    def newer() -> bool:
        raise Superseded("there is a newer driver")

    soon(lambda: one._watch(hanging, newer), Superseded, "newer")


def test_any_other_failure_is_told_at_once(spark: SparkSession) -> None:
    """Whatever is said in it: only a thread that hangs is waited for."""
    jvm: Any = spark.sparkContext._jvm

    class Broken:
        def stop(self) -> None:
            jvm.java.lang.Class.forName("TimeoutException")

    broken: Any = Broken()
    what = "ClassNotFoundException: TimeoutException"
    soon(lambda: ending.halt(broken, APP.id, lambda: 60.0), Unavailable, what)
