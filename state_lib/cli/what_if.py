"""``holdfast what-if``."""

from __future__ import annotations

from typing import Annotated

import typer


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(name="what-if")(what_if)


def what_if(
    app: Annotated[str, typer.Argument(metavar="APP", help="Application.")],
    snapshots: Annotated[
        list[str] | None,
        typer.Option(
            "--snapshots", metavar="TIME", help="Time between snapshots; may be repeated."
        ),
    ] = None,
    keep: Annotated[int, typer.Option(min=1, help="Snapshots kept of each task.")] = 5,
    deletes: Annotated[
        str | None, typer.Option("--deletes", metavar="TIME", help="delete.retention.ms.")
    ] = None,
    windows: Annotated[
        str | None,
        typer.Option("--windows", metavar="TIME", help="retention.ms of windows' changelogs."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Show what other retentions and snapshot intervals would keep, and how long restores take.

    Estimated from the logs, the pace of writing and the last restores. Times are such as '1 hour'
    or '7 days'. Nothing is changed.

    [bold]Examples[/bold]

      holdfast what-if flights

      holdfast what-if flights --snapshots '10 minutes' --snapshots '6 hours' --deletes '3 days'
    """
    from state_lib.cli._what_if import show

    every = snapshots or ["10 minutes", "1 hour", "6 hours", "1 day"]
    show(app, every, keep=keep, deletes=deletes, windows=windows, as_json=as_json)
