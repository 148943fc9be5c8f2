"""What ``holdfast repair config`` shows, asks and sets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import orjson
import typer
from rich.console import Console

from state_lib.checks import Change
from state_lib.cli._tables import table
from state_lib.config import Settings
from state_lib.gathering.repair import differences, left_different, set_approved
from state_lib.kafka import Kafka
from state_lib.logs import configure_logging


def repair(app: str, *, yes: bool, as_json: bool) -> None:
    """Show the difference, ask, set it, look again.

    Raises:
        typer.Exit: 1 if it would have to ask and must not, or something is still different.
        HoldfastError: the application is not there, Kafka is away, or does not let us; or something
            was set differently while it asked.
    """
    settings = Settings.load()
    configure_logging("ERROR")
    kafka = Kafka.of(settings)
    found = differences(settings, kafka, app)
    if not found:
        whole = f"nothing to repair: the topics that {app} owns are set as they have to be"
        _line({"event": "whole", "app": app}) if as_json else typer.echo(whole)
        return
    _show(found, as_json=as_json)
    if not yes:
        if as_json:
            raise typer.Exit(1)
        typer.confirm("Set these?", abort=True, err=True)
    done = set_approved(settings, kafka, app, found)
    left = left_different(settings, kafka, app)
    if as_json:
        left_ = [asdict(c) for c in left]
        _line({"event": "done", "app": app, "set": len(done), "left": left_})
    elif left:
        typer.echo("set, and still different; see 'holdfast check':")
        _show(left, as_json=False)
    else:
        typer.echo(f"repaired: {len(done)} settings of topics that {app} owns")
    if left:
        raise typer.Exit(1)


def _show(found: Sequence[Change], *, as_json: bool) -> None:
    if as_json:
        for change in found:
            _line({"event": "difference", **asdict(change)})
        return
    rows = [{"topic": c.topic, "setting": c.key, "is": c.seen, "to be": c.wanted} for c in found]
    Console().print(table(rows))


def _line(event: dict[str, Any]) -> None:
    typer.echo(orjson.dumps(event).decode())
