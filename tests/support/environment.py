"""Settings as a process finds them: in its environment."""

from __future__ import annotations

import pytest

from state_lib.config import Settings


def set_environment(monkeypatch: pytest.MonkeyPatch, settings: Settings) -> None:
    """Put all of them there, until the test ends."""
    for name, value in settings.as_environment().items():
        monkeypatch.setenv(name, value)
