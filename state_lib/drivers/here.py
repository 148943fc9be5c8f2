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


def living_here(settings: Settings, app: str, sight: Sight) -> tuple[str, ...]:
    """Ids of drivers whose processes live here and that have not said their last words.

    They are known by their log, which is that of the application in this home; so one that was
    started by hand, in another home or by another user is not seen.
    """
    log = str(Paths(settings.home).log(app).absolute())
    found = set()
    for process in processes.marked(LOG_VARIABLE, log):
        try:
            found.add(process.environ().get(ID_VARIABLE, ""))
        except (psutil.Error, OSError):
            continue
    return tuple(sorted(one for one in found if one and sight.end_of(one) is None))
