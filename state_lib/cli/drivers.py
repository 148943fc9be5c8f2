"""``holdfast drivers``."""

from __future__ import annotations

from typing import Annotated

import typer


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(name="drivers")(drivers)


def drivers(
    app: Annotated[str | None, typer.Argument(metavar="[APP]", help="Only this one.")] = None,
    seconds: Annotated[
        float, typer.Option(min=0, help="How long to look, for records per second.")
    ] = 3.0,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Show who runs each application: since when, where, its lag and its pace.

    [bold]Examples[/bold]

      holdfast drivers

      holdfast drivers flights --seconds 10

      holdfast drivers --json | jq '.[] | {app, state, lag}'
    """
    import json

    from rich.console import Console

    from state_lib.cli._drivers import drivers_table, look_twice
    from state_lib.config import Settings
    from state_lib.logs import configure_logging

    settings = Settings.load()
    configure_logging("ERROR")
    found = look_twice(settings, app, seconds)
    if as_json:
        typer.echo(json.dumps(found))
    else:
        Console().print(drivers_table(found))
