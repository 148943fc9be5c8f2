"""What a driver does at a batch's edge; whole drivers are in tests/chaos."""

from __future__ import annotations

import threading

from jobs.word_count import app
from state_lib.config import Settings
from state_lib.spark.driver import Driver


def test_a_batch_that_begins_while_the_query_is_stopped_ends_undone() -> None:
    """Whoever stops it holds the lock until Spark has ended the batch: nobody may wait for both."""
    driver, done = Driver(app, Settings.load()), threading.Event()
    batch = threading.Thread(target=driver._unless_stopping, args=[done.set], daemon=True)
    with driver._lock:
        batch.start()
        driver.stop()
        batch.join(60)
        assert not batch.is_alive()
    driver._unless_stopping(done.set)
    assert not done.is_set()


def test_a_batch_waits_for_what_is_done_beside_it() -> None:
    driver, done = Driver(app, Settings.load()), threading.Event()
    batch = threading.Thread(target=driver._unless_stopping, args=[done.set], daemon=True)
    with driver._lock:
        batch.start()
        assert not done.wait(0.3)
    assert done.wait(60)
    batch.join(60)
