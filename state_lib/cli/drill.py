"""``holdfast drill``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

FAILED, ALARM = 1, 2


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(name="drill")(drill)


def drill(
    app: Annotated[str, typer.Argument(metavar="APP", help="Application.")],
    folder: Annotated[
        Path | None, typer.Option("--dir", help="Where the temporary directory is made.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Restore each task's newest snapshot and its tail aside, compare, and measure.

    What a restore would give and take, beside the live stores, which go on. A difference is looked
    at once more at a newer marker. 'holdfast digest --against snapshot' compares as well, and does
    not measure.

    Exit code 0: all is equal; 1: a task could not be restored or compared; 2: a store differs.

    [bold]Examples[/bold]

      holdfast drill flights

      holdfast drill flights --dir /var/tmp --json | jq '.tasks[] | {partition, seconds}'
    """
    from rich.console import Console

    from state_lib.cli._drill import show
    from state_lib.config import Settings
    from state_lib.digests.drill_job import drill_app
    from state_lib.logs import configure_logging

    settings = Settings.load()
    configure_logging("ERROR")
    found = drill_app(settings, app, folder)
    if as_json:
        import orjson

        typer.echo(orjson.dumps(found.to_json()).decode())
    else:
        show(Console(), found)
    raise typer.Exit(ALARM if found.alarms else FAILED if found.failed or found.absent else 0)
