"""What a stream does at a batch's edge; whole drivers are in tests/chaos."""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import structlog
from structlog.testing import LogCapture

from state_lib.config import Settings
from state_lib.drivers import presence
from state_lib.drivers.process import DriverProcess
from state_lib.errors import HoldfastError, Realign, Unavailable
from state_lib.spark import streaming
from state_lib.spark.batches import Batches
from state_lib.spark.ending import ENDING_S
from state_lib.spark.streaming import Streaming
from state_lib.stack.ending import DRIVER_WAIT_S
from tests.support.declared import counting

APP = counting("word_count", {"lines": "counts"}, outputs=("word-counts",))


def test_a_batch_that_begins_while_the_query_is_stopped_ends_undone() -> None:
    """Whoever stops it holds the lock until Spark has ended the batch: nobody may wait for both."""
    stopping, done = threading.Event(), threading.Event()
    stream = _stream(stopping)
    batch = threading.Thread(target=stream._unless_ending, args=[done.set], daemon=True)
    with stream._lock:
        batch.start()
        stopping.set()
        batch.join(60)
        assert not batch.is_alive()
    stream._unless_ending(done.set)
    assert not done.is_set()


def test_a_batch_waits_for_what_is_done_beside_it() -> None:
    stream, done = _stream(threading.Event()), threading.Event()
    batch = threading.Thread(target=stream._unless_ending, args=[done.set], daemon=True)
    with stream._lock:
        batch.start()
        assert not done.wait(0.3)
    assert done.wait(60)
    batch.join(60)


@pytest.fixture(autouse=True)
def _session(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is there for as long as the query is: here there is none."""
    monkeypatch.setattr(streaming, "is_alive", lambda _: True)


def _stream(stopping: threading.Event) -> Streaming:
    """One that has no query: nothing here reaches Spark or a task."""
    none: Any = None
    return Streaming(none, none, none, APP.topology, Settings.load(), stopping)


def test_a_batch_that_hangs_is_left_to_the_next_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its jobs are cancelled before; but it may wait for Kafka, and hold the lock."""
    monkeypatch.setattr(streaming, "ENDING_S", 0.2)
    none: Any = None
    settings = Settings.load(stop_timeout_s=0.2)
    stream = Streaming(none, none, none, APP.topology, settings, threading.Event())
    with stream._lock, pytest.raises(Unavailable, match="the batch of 'word_count' does not end"):
        stream._end(none)


def test_an_end_takes_less_than_those_who_wait_for_it_have_patience() -> None:
    """A batch, Spark's thread, and last words for a Kafka that does not answer."""
    words_s = presence._LAST_WORDS_S + presence._LEAVE_S
    most_s = Settings.load().stop_timeout_s + 2 * ENDING_S + words_s
    patience_s = inspect.signature(DriverProcess.end).parameters["timeout_s"].default
    assert most_s + 5 <= min(DRIVER_WAIT_S, patience_s)


@pytest.mark.parametrize("stopped", [True, False])
def test_a_batch_that_has_not_begun_does_not_outwait_a_stop(*, stopped: bool) -> None:
    asked = []

    def ask() -> str:
        asked.append(1)
        if len(asked) == 1:
            raise Unavailable("Kafka is away")
        return "here"

    waits: Any = SimpleNamespace(_settings=Settings.load(exchange_timeout_s=60))
    if stopped:
        with pytest.raises(Unavailable):
            Batches._patiently(waits, ask, lambda: True)
    else:
        assert Batches._patiently(waits, ask, lambda: False) == "here"


class Query:
    """Of Spark's, as far as who watches it sees it."""

    isActive = True  # noqa: N815 - its name there

    def stop(self) -> None:
        self.isActive = False


def _watched(bring_back: Callable[[float], None], tick: Callable[[], bool]) -> Streaming:
    """What does these between two batches, every moment."""
    stream = _stream(threading.Event())
    parking: Any = SimpleNamespace(bring_back=bring_back, batches=SimpleNamespace(tick=tick))
    stream._parking = parking
    return stream


def test_a_stop_is_heard_while_parked_tasks_are_brought_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(streaming, "POLL_S", 0.05)
    begun, query = threading.Event(), Query()

    def bring_back(_: float) -> None:
        begun.set()
        assert stream._stopping.wait(60)

    def asked_to_stop() -> bool:
        if begun.is_set():
            stream._stopping.set()
        return begun.is_set()

    stream = _watched(bring_back, lambda: False)
    spark: Any = query
    watch = threading.Thread(target=stream._watch, args=[spark, asked_to_stop], daemon=True)
    watch.start()
    watch.join(20)
    assert not watch.is_alive()
    assert not query.isActive


@pytest.mark.parametrize("failure", [Realign("stands elsewhere"), RuntimeError("a fault")])
def test_whatever_fails_between_two_batches_leaves_no_query(
    monkeypatch: pytest.MonkeyPatch, failure: Exception
) -> None:
    monkeypatch.setattr(streaming, "POLL_S", 0.05)
    query: Any = Query()

    def fail(_: float) -> None:
        raise failure

    with pytest.raises(type(failure), match=str(failure)):
        _watched(fail, lambda: False)._watch(query, lambda: False)
    assert not query.isActive


def test_whatever_fails_where_a_stop_is_listened_for_leaves_no_query(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(streaming, "POLL_S", 0.05)
    query: Any = Query()

    def asked_to_stop() -> bool:
        raise HoldfastError("who knows")

    with pytest.raises(HoldfastError, match="who knows"):
        _watched(lambda _: None, lambda: False)._watch(query, asked_to_stop)
    assert not query.isActive


@pytest.mark.parametrize(
    ("failure", "told"),
    [
        (None, "stopped at a batch's edge"),
        (Unavailable("cancelled\nat a line"), "the last batch was left undone"),
    ],
)
def test_a_batch_that_was_left_undone_is_told(
    monkeypatch: pytest.MonkeyPatch, failure: Unavailable | None, told: str
) -> None:
    # Not the one that other tests have configured, whose level may leave this out.
    captured = LogCapture()
    every = structlog.make_filtering_bound_logger(0)
    monkeypatch.setattr(
        streaming, "log", structlog.wrap_logger(None, processors=[captured], wrapper_class=every)
    )
    stopping = threading.Event()
    stopping.set()
    stream = _stream(stopping)
    standing = SimpleNamespace(standing=SimpleNamespace(epoch=1, positions={}))
    parking: Any = SimpleNamespace(batches=standing)
    stream._parking, stream._failure = parking, failure
    stream.run(lambda: True)
    assert captured.entries[-1]["event"] == told
    assert captured.entries[-1].get("why") == (failure and "cancelled")
