"""``holdfast status``."""

from __future__ import annotations

from typing import Annotated

import typer

NOT_HEALTHY = 3  # what init scripts return for a service that is not running


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(name="status")(status)


def status(
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Show what runs, and how it is: services and streams.

    Exit code 0: all services are healthy; 3: they are not.

    [bold]Examples[/bold]

      holdfast status

      holdfast status --json | python -m json.tool
    """
    import json

    from rich.console import Console

    from state_lib.cli._status_table import show
    from state_lib.cli._streams import streams
    from state_lib.config import Settings
    from state_lib.logs import configure_logging
    from state_lib.stack import Stack

    settings = Settings.load()
    configure_logging("ERROR")
    found = Stack(settings).status()
    seen = streams(settings, found)
    if as_json:
        typer.echo(json.dumps({**found.to_json(), **seen.to_json()}, indent=2))
    else:
        show(Console(), found, seen)
    if not found.healthy:
        raise typer.Exit(NOT_HEALTHY)
