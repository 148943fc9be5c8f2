"""A driver whose stream fails: it pauses, longer each time, and gives up after so many."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
from py4j.protocol import Py4JNetworkError

from state_lib.config import Settings
from state_lib.drivers.watched import Watched
from state_lib.errors import ConfigurationError, HoldfastError, Unavailable, WorkerLost
from state_lib.spark import running
from state_lib.spark.driver import Driver
from state_lib.spark.opened import Opened
from tests.support.declared import counting

APP = counting("word_count", {"lines": "counts"}, outputs=("word-counts",))

MOST = 7


class Pauses(threading.Event):
    """Notes how long is waited, and does not wait."""

    def __init__(self) -> None:
        super().__init__()
        self.seconds: list[float] = []

    def wait(self, timeout: float | None = None) -> bool:
        self.seconds.append(timeout or 0.0)
        return self.is_set()


@pytest.fixture
def pauses() -> Pauses:
    return Pauses()


class Session(Opened):
    """None is opened; ``error``: it was a user's, and has been stopped."""

    def __init__(self, error: Unavailable | None = None) -> None:
        self._error = error

    def lost(self) -> Unavailable | None:
        return self._error


def run(
    pauses: Pauses, token_file: Path | None = None, lost: Unavailable | None = None
) -> tuple[str, str, bool]:
    settings = Settings.load(
        bootstrap_servers="127.0.0.1:1", max_restarts=MOST, token_file=token_file
    )
    watched = Watched.of(APP.id, settings)
    own = Watched(watched.presence, watched.control, pauses)
    ended = running.tried(APP, settings, own, Session(lost))
    return ended.how, ended.why, ended.retry


def test_pauses_grow_up_to_a_bound(pauses: Pauses, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: Driver) -> None:
        raise Unavailable("the hosts are away")

    monkeypatch.setattr(Driver, "run", fail)
    assert run(pauses) == ("failed", "the hosts are away", True)
    assert pauses.seconds == [1.0, 2.0, 4.0, 8.0, 15.0, 15.0, 15.0]


def test_a_worker_that_ended_is_tried_again(
    pauses: Pauses, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel may have taken it for its memory: not every time."""

    def fail(_: Driver) -> None:
        raise WorkerLost("a Python worker ended")

    monkeypatch.setattr(Driver, "run", fail)
    assert run(pauses) == ("failed", "a Python worker ended", True)
    assert len(pauses.seconds) == MOST


def test_one_that_committed_begins_anew(pauses: Pauses, monkeypatch: pytest.MonkeyPatch) -> None:
    tries: list[int] = []

    def fail(self: Driver) -> None:
        tries.append(1)
        if len(tries) == 4:
            stream: Any = _Committed()
            self._stream = stream
        if len(tries) == 6:
            raise ConfigurationError("what no restart mends")
        raise Unavailable("the hosts are away")

    monkeypatch.setattr(Driver, "run", fail)
    assert run(pauses) == ("failed", "what no restart mends", False)
    assert pauses.seconds == [1.0, 2.0, 4.0, 1.0, 2.0]


def test_one_that_cannot_be_made_is_refused(pauses: Pauses, tmp_path: Path) -> None:
    missing = tmp_path / "token"
    how, why, retry = run(pauses, missing)
    assert (how, retry, pauses.seconds) == ("failed", False, [])
    assert f"cannot read HOLDFAST_TOKEN_FILE {missing}" in why


class _Committed:
    committed = True


@pytest.mark.parametrize("error", [HoldfastError("the query ended"), AttributeError("no _jsc")])
def test_without_its_session_no_other_try_helps_and_a_new_process_does(
    pauses: Pauses, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def fail(_: Driver) -> None:
        raise error

    monkeypatch.setattr(Driver, "run", fail)
    lost = Unavailable("the session has been stopped")
    assert run(pauses, lost=lost) == ("failed", "the session has been stopped", True)
    assert pauses.seconds == []


def test_without_its_jvm_no_other_try_helps(
    pauses: Pauses, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: Driver) -> None:
        raise Py4JNetworkError("Answer from Java side is empty")

    monkeypatch.setattr(Driver, "run", fail)
    how, why, retry = run(pauses)
    assert (how, retry, pauses.seconds) == ("failed", True, [])
    assert why.startswith("the JVM is gone")


def test_a_stop_ends_the_tries(pauses: Pauses, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: Driver) -> None:
        pauses.set()
        raise Unavailable("the query does not stop")

    monkeypatch.setattr(Driver, "run", fail)
    how, _, retry = run(pauses)
    assert (how, retry) == ("stopped", False)
