"""Failpoints act where and when they are told."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from state_lib import failpoints
from state_lib.failpoints import failpoint


@pytest.fixture(autouse=True)
def unpassed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(failpoints, "_passed", type(failpoints._passed)())
    monkeypatch.delenv("HOLDFAST_FAILPOINTS_DIR", raising=False)


def test_unarmed_does_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HOLDFAST_FAILPOINTS", raising=False)
    failpoint("commit.after_kafka")


def test_only_the_named_point_acts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOLDFAST_FAILPOINTS", "commit.after_kafka=raise")
    failpoint("commit.after_rocksdb")
    with pytest.raises(RuntimeError, match=r"commit\.after_kafka"):
        failpoint("commit.after_kafka")


def test_the_kth_passing(monkeypatch: pytest.MonkeyPatch) -> None:
    armed = "commit.after_kafka=raise@3; commit.after_rocksdb=sleep:0.05"
    monkeypatch.setenv("HOLDFAST_FAILPOINTS", armed)
    failpoint("commit.after_kafka")
    failpoint("commit.after_kafka")
    with pytest.raises(RuntimeError):
        failpoint("commit.after_kafka")
    failpoint("commit.after_kafka")
    started = time.monotonic()
    failpoint("commit.after_rocksdb")
    assert time.monotonic() - started >= 0.05


def test_once_over_restarts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOLDFAST_FAILPOINTS", "driver.before_batch=raise")
    monkeypatch.setenv("HOLDFAST_FAILPOINTS_DIR", str(tmp_path))
    with pytest.raises(RuntimeError):
        failpoint("driver.before_batch")
    failpoint("driver.before_batch")
    assert [p.name for p in tmp_path.iterdir()] == ["driver.before_batch"]


@pytest.mark.parametrize("armed", ["commit.nowhere=raise", "commit.after_kafka=explode"])
def test_typos_are_loud(monkeypatch: pytest.MonkeyPatch, armed: str) -> None:
    monkeypatch.setenv("HOLDFAST_FAILPOINTS", armed)
    with pytest.raises(ValueError, match="unknown"):
        failpoint("commit.after_kafka")


@pytest.mark.parametrize("action", failpoints.OF_WORKERS)
def test_what_is_meant_for_workers_stays_armed_elsewhere(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, action: str
) -> None:
    """A driver commits ticks of the clock itself; it once took the point away from an executor."""
    monkeypatch.setenv("HOLDFAST_FAILPOINTS", f"exchange.after_commit={action}")
    monkeypatch.setenv("HOLDFAST_FAILPOINTS_DIR", str(tmp_path))
    failpoint("exchange.after_commit")
    assert not list(tmp_path.iterdir())


def test_kill_is_sigkill() -> None:
    code = "from state_lib.failpoints import failpoint; failpoint('driver.after_batch')"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={"HOLDFAST_FAILPOINTS": "driver.after_batch=kill", "PYTHONPATH": ":".join(sys.path)},
        check=False,
    )
    assert done.returncode == -signal.SIGKILL
