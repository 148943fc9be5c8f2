"""What ``holdfast check`` gathers and prints."""

from __future__ import annotations

import orjson
import typer
from rich.console import Console
from rich.text import Text

from state_lib.checks import Report, Verdict, judge
from state_lib.config import Settings
from state_lib.errors import HoldfastError
from state_lib.gathering.application import gather
from state_lib.kafka import Kafka
from state_lib.logs import configure_logging

COULD_NOT = 2
"""Whoever acts on the exit code must not take this for a mere warning."""
_STYLES = {"ok": "green", "warn": "yellow", "fail": "red"}


def run(app: str, *, show_all: bool, as_json: bool, quick: bool, timeout_s: float) -> int:
    """Gather, judge, print; returns the exit code."""
    try:
        return _run(app, show_all=show_all, as_json=as_json, quick=quick, timeout_s=timeout_s)
    except Exception as error:  # noqa: BLE001 - 1 would be a warning
        return _failed(app, error, as_json=as_json)


def _run(app: str, *, show_all: bool, as_json: bool, quick: bool, timeout_s: float) -> int:
    settings = Settings.load()
    configure_logging("ERROR")
    kafka = Kafka.of(settings)
    report = judge(gather(settings, kafka, app, timeout_s=timeout_s, read_logs=not quick))
    if as_json:
        typer.echo(orjson.dumps(report.to_json(), option=orjson.OPT_INDENT_2).decode())
    else:
        show(Console(), report, show_all=show_all)
    return report.exit_code


def _failed(app: str, error: Exception, *, as_json: bool) -> int:
    """Say why there is no verdict."""
    if isinstance(error, HoldfastError):
        said, wire = error.message, error.to_wire()
    else:
        said = f"this is a fault of Holdfast, please report it: {error!r}"
        wire = {"code": "internal", "message": said}
    if as_json:
        failed = {"app": app, "level": "fail", "verdicts": [], "error": wire}
        typer.echo(orjson.dumps(failed).decode())
    else:
        console = Console(stderr=True, soft_wrap=True)
        console.print(f"Error: {said}", style="red", markup=False, highlight=False)
    return COULD_NOT


def show(console: Console, report: Report, *, show_all: bool = False) -> None:
    """For people: what is wrong, the worst first, then a line with the counts."""
    for one in report.verdicts if show_all else report.alarms:
        console.print(_text(one), soft_wrap=True)
    counts = {level: sum(v.level == level for v in report.verdicts) for level in _STYLES}
    said = ", ".join(f"{count} {level}" for level, count in counts.items())
    console.print(Text(f"{report.app}: {said}", style=_STYLES[report.level]), soft_wrap=True)


def _text(one: Verdict) -> Text:
    text = Text(f"{one.level:4} ", style=_STYLES[one.level])
    text.append(f"{one.check}  {one.subject}\n", style="bold")
    text.append(f"     seen:   {one.seen}\n     needed: {one.needed}\n", style="default")
    if one.level != "ok":
        text.append(f"     next:   {one.step}\n     read:   {one.document}\n", style="default")
    return text
