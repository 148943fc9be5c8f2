"""Workers are started ahead of the first batch, and that may fail."""

from __future__ import annotations

from typing import Any

import psutil
import pytest
from pyspark.sql import SparkSession

from state_lib.spark.warm import warm_up
from state_lib.submit import DAEMON


def workers() -> int:
    found = [p.cmdline() for p in psutil.Process().children(recursive=True)]
    return sum(DAEMON in command for command in found)


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
