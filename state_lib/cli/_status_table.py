"""A stack's status as a table."""

from __future__ import annotations

import os
from datetime import timedelta

from rich.console import Console
from rich.table import Table

from state_lib.cli._streams import Streams, streams_table
from state_lib.stack import StackStatus
from state_lib.stack.airflow import Login

COLOURS = {"healthy": "green", "unhealthy": "red", "down": "dim"}


def show(console: Console, status: StackStatus, seen: Streams | None = None) -> None:
    """Services, streams, and below them how to get into Airflow."""
    console.print(table(status))
    if seen is not None:
        console.print(streams_table(seen))
    if status.airflow and status.supervisor_pid:
        console.print(login_text(status.airflow), highlight=False, soft_wrap=True)


def login_text(login: Login) -> str:
    """Which page to open, as whom, and where the password is."""
    if login.password_file is None:
        return f"Airflow: {login.url}   open to everyone on this machine"
    file = os.path.relpath(login.password_file)
    return f"Airflow: {login.url}   user {login.user}, password in {file}"


def table(status: StackStatus) -> Table:
    """One row per service."""
    supervisor = status.supervisor_pid
    shown = Table(
        title=f"{status.home}" + ("" if supervisor else " (not running)"),
        title_justify="left",
        caption=f"supervisor: process {supervisor}; 'holdfast logs SERVICE' shows a log"
        if supervisor
        else None,
        caption_justify="left",
    )
    for column in ("service", "state", "pid", "uptime", "ports", "health"):
        shown.add_column(column, no_wrap=column == "service")
    for service in status.services:
        uptime = "" if service.uptime_s is None else str(timedelta(seconds=service.uptime_s))
        shown.add_row(
            service.name,
            service.state,
            str(service.pid or ""),
            uptime,
            " ".join(map(str, service.ports)),
            f"[{COLOURS[service.health]}]{service.health}",
        )
    return shown
