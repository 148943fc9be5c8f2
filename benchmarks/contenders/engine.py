"""What a benchmark asks of a stream engine that it runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from benchmarks.processes import Child


@dataclass(frozen=True)
class Query:
    """The one query of all benchmarks: count by key, ``window_ms`` 0 for none."""

    app: str
    topic: str
    window_ms: int = 0

    STORE = "counts"
    RETENTION_MS = 24 * 3600 * 1000
    """Of window stores; the grace is all of it, so that nobody drops a record."""


class StreamEngine(Protocol):
    """A query that runs, in processes that can be killed; ``home`` holds its files."""

    home: Path

    def start(self) -> None:
        """Start the processes; does not wait for them."""
        ...

    @property
    def children(self) -> list[Child]:
        """The processes that run now."""
        ...

    def check(self) -> None:
        """Raise RuntimeError with the log's end if one of them has ended."""
        ...

    def position(self) -> int:
        """Records of the source that are committed."""
        ...

    def outcome(self) -> Mapping[str, Any]:
        """Facts of the store that must be the same for all: ``entries``, ``total``, ``digest``."""
        ...

    def kill(self) -> None:
        """SIGKILL all of it."""
        ...

    def stop(self) -> None:
        """End all of it."""
        ...
