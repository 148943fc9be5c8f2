"""``holdfast status``."""

from __future__ import annotations

from typing import Annotated

import typer

NOT_HEALTHY = 3  # what init scripts return for a service that is not running


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(name="status")(status)


def status(
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,  # noqa: FBT002 - typer's way to declare a flag
) -> None:
    """Show what runs, and how it is. Exit code 0: all services are healthy; 3: they are not.

    [bold]Examples[/bold]

      holdfast status

      holdfast status --json | python -m json.tool
    """
    import json  # noqa: PLC0415 - `--help` must be fast

    from rich.console import Console  # noqa: PLC0415

    from state_lib.cli._status_table import table  # noqa: PLC0415
    from state_lib.config import Settings  # noqa: PLC0415
    from state_lib.stack import Stack  # noqa: PLC0415

    found = Stack(Settings.load()).status()
    if as_json:
        typer.echo(json.dumps(found.to_json(), indent=2))
    else:
        Console().print(table(found))
    if not found.healthy:
        raise typer.Exit(NOT_HEALTHY)
