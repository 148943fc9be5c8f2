"""A full replay that waits until a test lets it go on."""

from __future__ import annotations

import threading

import pytest

from state_lib.restore.replay import Replay
from tests.support.waiting import SLOWNESS


class HeldReplay:
    """From now on; ``begun`` tells that one waits, ``go`` lets all of them on.

    ``waiting`` is how many are in it, ``most`` how many were at a time.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.begun, self.go = threading.Event(), threading.Event()
        self.waiting = self.most = 0
        lock, full = threading.Lock(), Replay.full

        def waits(replay: Replay, *arguments: object) -> int:
            with lock:
                self.waiting += 1
                self.most = max(self.most, self.waiting)
            self.begun.set()
            try:
                assert self.go.wait(60 * SLOWNESS)
                return full(replay, *arguments)  # type: ignore[arg-type]
            finally:
                with lock:
                    self.waiting -= 1

        monkeypatch.setattr(Replay, "full", waits)

    def wait(self) -> None:
        """Until one waits."""
        assert self.begun.wait(60 * SLOWNESS)
