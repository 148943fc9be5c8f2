"""Drivers of an application that live on this machine, also before they join Kafka's group."""

from __future__ import annotations

from typing import TYPE_CHECKING

import psutil

from state_lib import processes
from state_lib.drivers.identity import ID_VARIABLE, LOG_VARIABLE
from state_lib.stack.paths import Paths

if TYPE_CHECKING:
    from state_lib.config import Settings
    from state_lib.drivers.sight import Sight


class Here:
    """Follows drivers by their processes.

    All processes of the machine are looked through only where none that was found lives any more.

    Drivers are known by their log, which is that of the application in this home; so one that was
    started by hand, in another home or by another user is not seen.
    """

    def __init__(self, settings: Settings, app: str) -> None:
        self._log = str(Paths(settings.home).log(app).absolute())
        self._found: dict[psutil.Process, str] = {}

    def drivers(self, sight: Sight) -> tuple[str, ...]:
        """Ids of drivers whose processes live here and that have not said their last words."""
        self._found = self._left(sight)
        if not self._found:
            self._found = self._search()
            self._found = self._left(sight)
        return tuple(sorted(set(self._found.values())))

    def _left(self, sight: Sight) -> dict[psutil.Process, str]:
        return {p: d for p, d in self._found.items() if sight.end_of(d) is None and _lives(p)}

    def _search(self) -> dict[psutil.Process, str]:
        found = {}
        for process in processes.surely_marked(LOG_VARIABLE, self._log):
            try:
                found[process] = process.environ().get(ID_VARIABLE, "")
            except (psutil.Error, OSError):
                continue
        return {process: driver for process, driver in found.items() if driver}


def _lives(process: psutil.Process) -> bool:
    """Whether it is the process that was found, by its id and its start, and has not ended."""
    try:
        return bool(process.is_running()) and process.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False
