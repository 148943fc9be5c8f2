"""Where reports of one kind about one application are kept; the last ones only."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from state_lib.protocol.marker import now_ms
from state_lib.snapshots.manifest import is_id, new_id
from state_lib.snapshots.storage import Storage

if TYPE_CHECKING:
    from state_lib.config import Settings

Kind = Literal[
    "audit", "capacity", "comparison", "drill", "repair", "restore", "savepoint", "verification"
]


def new_report() -> str:
    """An id for a report of now."""
    return new_id(now_ms())


class Reports:
    """Files ``<url>/<app>/<kind>/<id>.<suffix>``; ids sort by time.

    Args:
        url: of all reports: ``HOLDFAST_REPORTS_URL``.
        app: the application.
        kind: of report.

    Raises:
        InvalidName: not a possible name of an application.
        ConfigurationError: a URL that nobody knows.
    """

    def __init__(self, url: str, app: str, kind: Kind) -> None:
        self._storage = Storage(url, app, kind, kept="report")

    @classmethod
    def of(cls, settings: Settings, app: str, kind: Kind) -> Reports:
        """By the settings."""
        return cls(settings.reports_url, app, kind)

    def url(self, name: str) -> str:
        """Of a file."""
        return f"{self._storage.url}/{name}"

    def write(self, name: str, content: bytes) -> None:
        """Write or replace; whole or not at all. Raises StorageUnavailable."""
        self._storage.write(name, content)

    def read(self, name: str) -> bytes | None:
        """The content; None if it is not there. Raises StorageUnavailable."""
        return self._storage.read(name)

    def ids(self) -> list[str]:
        """Of the reports that there are, the newest first. Raises StorageUnavailable."""
        return sorted({_id(name) for name in self._storage.listing("")} - {""}, reverse=True)

    def ask_to_end(self, job: str) -> None:
        """Ask a job to end, on whatever machine it runs. Raises StorageUnavailable."""
        self.write(f"{job}.stop", b"")

    def is_asked_to_end(self, job: str) -> bool:
        """Whether somebody has asked it. Raises StorageUnavailable."""
        return self.read(f"{job}.stop") is not None

    def prune(self, keep: int) -> None:
        """Remove all but the newest. Raises StorageUnavailable."""
        gone = set(self.ids()[keep:])
        self._storage.delete([n for n in self._storage.listing("") if _id(n) in gone])


def _id(name: str) -> str:
    """Of a file that is a report's."""
    found = name.partition(".")[0]
    return found if is_id(found) else ""
