"""What ``holdfast restore --to`` asks and prints."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import Any

import orjson
import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from state_lib.apps.past import Journey, carry_out
from state_lib.apps.past import plan as plan_past
from state_lib.config import Settings
from state_lib.errors import InvalidRequest
from state_lib.restore.past import PastPlan
from state_lib.times import iso
from state_lib.words import size


def check_options(to: str | None, source: str | None, *, republish: bool) -> None:
    """Raise InvalidRequest for options that do not go together."""
    if to is not None and source is not None:
        raise InvalidRequest(
            f"--to {to} and --from {source}: a restore either goes back in time, or brings the "
            "present state from a source; leave one of them out"
        )
    if republish and to is None:
        raise InvalidRequest("--republish without --to: only what is read again has outputs")


def ask_past(app: str, tasks: Sequence[int] | None, to: str, *, republish: bool) -> Journey:
    """What going back would mean. Raises as `state_lib.apps.past.plan`."""
    return plan_past(Settings.load(), app, to, tasks, republish=republish)


def show_past(journey: Journey, *, as_json: bool) -> None:
    """For people, or as JSON: an object with the plans and the drivers."""
    if as_json:
        typer.echo(orjson.dumps(journey.to_json(), option=orjson.OPT_INDENT_2).decode())
        return
    console = Console()
    table = Table(title=f"{journey.app}: back in time", title_justify="left", title_style="bold")
    for name in ("task", "snapshot", "state of", "commit", "stream time"):
        table.add_column(name, no_wrap=name == "snapshot", overflow="fold")
    for name in ("read again", "batches", "bytes", "seconds"):
        table.add_column(name, justify="right")
    for one in journey.plans:
        table.add_row(*_row(one))
    console.print(table)
    for one in journey.plans:
        if one.needed_bytes and not one.is_nothing:
            console.print(Text(f"  {one.task}: {_disk(one)}", style="" if _fits(one) else "red"))
        for what in one.discards:
            console.print(Text(f"  {one.task} loses {what}", style="yellow"))
    for driver in journey.drivers:
        line = f"  driver {driver} ends at a batch's edge; its supervisor starts another"
        console.print(Text(line, style="yellow"))


def go_back(
    app: str,
    tasks: Sequence[int] | None,
    to: str,
    *,
    republish: bool,
    yes: bool,
    as_json: bool,
) -> None:
    """Show, ask, and do it.

    Raises:
        HoldfastError: as `state_lib.apps.past`.
        typer.Abort: the answer was no.
    """
    journey = ask_past(app, tasks, to, republish=republish)
    if not as_json:
        show_past(journey, as_json=False)
    if all(one.is_nothing for one in journey.plans):
        if not as_json:
            typer.echo(f"nothing to do: {len(journey.plans)} tasks of {app} stand there")
        return
    if not yes:
        typer.confirm("Go back? What is listed above is lost", abort=True, err=True)
    lines = _Lines(as_json=as_json)
    carry_out(Settings.load(), journey, lines.told, lines.watch)
    lines.over(journey)


def _row(one: PastPlan) -> tuple[str, ...]:
    if one.is_nothing:
        stands = "it stands there"
        return one.task, one.snapshot, stands, f"{one.epoch}/{one.batch_number}", "", "", "", "", ""
    return (
        one.task,
        one.snapshot,
        iso(one.written_at) or "",
        f"{one.epoch}/{one.batch_number}",
        (iso(one.stream_time_ms) or "") if one.stream_time_ms >= 0 else "",
        f"{one.records:,}",
        f"{one.batches:,}",
        size(one.bytes),
        f"{one.seconds:,.1f}",
    )


def _disk(one: PastPlan) -> str:
    needed, free = size(one.needed_bytes), size(one.free_bytes)
    return f"disk: at most about {needed} needed, {free} free"


def _fits(one: PastPlan) -> bool:
    return one.needed_bytes <= one.free_bytes


class _Lines:
    """What happens, a line each; as JSON an event each."""

    def __init__(self, *, as_json: bool) -> None:
        self._as_json, self._lock = as_json, threading.Lock()

    def told(self, line: str) -> None:
        self._say({"event": "told", "line": line}, line)

    def watch(self, task: str, event: Mapping[str, Any]) -> None:
        kind = event["event"]
        line = ""
        if kind == "fetch" and event["done"] == event["total"]:
            line = f"{task}: the snapshot is on its host ({event['total']:,} bytes)"
        elif kind == "end":
            line = f"{task}: {event['store']}: {event['records']:,} entries"
        elif kind == "done" and "marker" in event:
            line = f"{task}: is back, at epoch {event['marker']['epoch']}"
        elif kind == "failed":
            line = f"{task}: {event['message']}"
        self._say(event, line)

    def over(self, journey: Journey) -> None:
        again = "its supervisor starts a new driver, which reads on from there"
        self.told(again if journey.drivers else f"start the job of {journey.app}: it reads on")

    def _say(self, event: Mapping[str, Any], line: str) -> None:
        with self._lock:
            if self._as_json:
                typer.echo(orjson.dumps(event).decode())
            elif line:
                typer.echo(line)
