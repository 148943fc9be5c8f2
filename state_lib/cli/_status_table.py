"""A stack's status as a table."""

from __future__ import annotations

import os
from datetime import timedelta

from rich.table import Table

from state_lib.stack import StackStatus

COLOURS = {"healthy": "green", "unhealthy": "red", "down": "dim"}


def table(status: StackStatus) -> Table:
    """One row per service."""
    supervisor = status.supervisor_pid
    shown = Table(
        title=f"{status.home}" + ("" if supervisor else " (not running)"),
        title_justify="left",
        caption=f"supervisor: process {supervisor}" if supervisor else None,
        caption_justify="left",
    )
    for column in ("service", "state", "pid", "uptime", "ports", "health"):
        shown.add_column(column)
    shown.add_column("log", overflow="fold")
    for service in status.services:
        uptime = "" if service.uptime_s is None else str(timedelta(seconds=service.uptime_s))
        shown.add_row(
            service.name,
            service.state,
            str(service.pid or ""),
            uptime,
            " ".join(map(str, service.ports)),
            f"[{COLOURS[service.health]}]{service.health}",
            os.path.relpath(service.log),
        )
    return shown
