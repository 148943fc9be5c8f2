"""What the newest restore drill of an application said."""

from __future__ import annotations

import orjson

from state_lib.checks.facts import DrillSeen
from state_lib.errors import StorageUnavailable
from state_lib.reports.folder import Reports
from state_lib.reports.record import Record


def drill_seen(reports: Reports) -> DrillSeen | None:
    """Of the newest that came to its end; None if there is none, or if nobody can tell.

    One that runs, or that failed as a whole because brokers or hosts were away, says nothing.
    """
    try:
        for name in reports.ids():
            found = _ended(reports, name)
            if found is not None:
                return found
    except StorageUnavailable:
        return None
    return None


def _ended(reports: Reports, name: str) -> DrillSeen | None:
    try:
        record = Record.read(reports, name)
    except (orjson.JSONDecodeError, TypeError):  # a file of somebody else's
        return None
    if record is None or record.result is None:
        return None
    different, failed, absent = (record.result[what] for what in ("alarms", "failed", "absent"))
    return DrillSeen(record.at, tuple(different), tuple(sorted((*failed, *absent))))
