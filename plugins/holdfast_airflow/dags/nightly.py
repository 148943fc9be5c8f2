"""When daily work runs that takes a machine's cores."""

from __future__ import annotations

from zlib import crc32

NIGHTLY = "nightly"
"""Every day, between 01:00 and 05:00 UTC: each DAG at a minute that its name decides."""
_FROM, _MINUTES = 60, 240


def cron_of(dag_id: str) -> str:
    """When a DAG of `NIGHTLY` runs: always at the same time, and rarely at that of another.

    All at once they would have a driver and hosts answer late, which is an alarm.
    """
    hour, minute = divmod(_FROM + crc32(dag_id.encode()) % _MINUTES, 60)
    return f"{minute} {hour} * * *"
