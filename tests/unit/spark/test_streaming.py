"""What a stream does at a batch's edge; whole drivers are in tests/chaos."""

from __future__ import annotations

import threading
from typing import Any

from jobs.word_count import app
from state_lib.config import Settings
from state_lib.spark.streaming import Streaming


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


def _stream(stopping: threading.Event) -> Streaming:
    """One that has no query: nothing here reaches Spark or a task."""
    none: Any = None
    return Streaming(none, none, none, app.topology, Settings.load(), stopping)
