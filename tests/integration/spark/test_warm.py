"""Workers are started ahead of the first batch, and that may fail."""

from __future__ import annotations

import contextlib
from typing import Any

import psutil
import pytest
from pyspark.sql import SparkSession

from state_lib.spark.warm import warm_up
from state_lib.submit import DAEMON


def workers() -> int:
    found = 0
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):  # one that has just ended: Hadoop's small programs
            found += DAEMON in process.cmdline()
    return found


def test_it_starts_workers(spark: SparkSession) -> None:
    assert not workers()
    warm_up(spark).join(120)
    assert workers() > 1, "a daemon, and what it has forked"


def test_what_fails_is_nobodys_business(monkeypatch: pytest.MonkeyPatch) -> None:
    gone: Any = None
    unseen: list[object] = []
    monkeypatch.setattr("threading.excepthook", unseen.append)
    thread = warm_up(gone)
    thread.join(120)
    assert not thread.is_alive()
    assert not unseen
