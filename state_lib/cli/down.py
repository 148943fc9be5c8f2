"""``holdfast down``."""

from __future__ import annotations

from typing import Annotated

import typer


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(name="down")(down)


def down(
    wipe: Annotated[
        bool, typer.Option("--wipe", help="Also remove all local data, topics and stores alike.")
    ] = False,
) -> None:
    """End the local stack and everything it started. Its data stays.

    [bold]Examples[/bold]

      holdfast down

      holdfast down --wipe
    """
    from rich.console import Console

    from state_lib.config import Settings
    from state_lib.stack import Stack

    console = Console()
    stack = Stack(Settings.load())
    with console.status("stopping services in reverse order"):
        ended = stack.down(wipe=wipe)
    console.print(f"{len(ended)} processes ended" if ended else "nothing was running")
    if wipe:
        console.print(f"removed {stack.paths.home}", highlight=False)
