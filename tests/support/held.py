"""A full replay that waits until a test lets it go on."""

from __future__ import annotations

import threading

import pytest

from state_lib.restore.replay import Replay
from tests.support.waiting import SLOWNESS


class HeldReplay:
    """From now on; ``begun`` tells that one waits, ``go`` lets all of them on."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.begun, self.go = threading.Event(), threading.Event()
        full = Replay.full

        def waits(replay: Replay, *arguments: object) -> int:
            self.begun.set()
            assert self.go.wait(60 * SLOWNESS)
            return full(replay, *arguments)  # type: ignore[arg-type]

        monkeypatch.setattr(Replay, "full", waits)

    def wait(self) -> None:
        """Until one waits."""
        assert self.begun.wait(60 * SLOWNESS)
