"""``holdfast check``."""

from __future__ import annotations

from typing import Annotated

import typer


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(name="check")(check)


def check(
    app: Annotated[str, typer.Argument(metavar="APP", help="Application.")],
    show_all: Annotated[bool, typer.Option("--all", help="Show what is ok as well.")] = False,
    quick: Annotated[
        bool, typer.Option("--quick", help="Do not read changelogs: says nothing of compaction.")
    ] = False,
    timeout: Annotated[
        float, typer.Option(min=0.1, help="How long the hosts may take to answer, in s.")
    ] = 10.0,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON: every verdict.")] = False,
) -> None:
    """Check whether an application's state is safe: topics, logs, tasks, snapshots, disks.

    Each verdict says what was seen, what is needed, the next step, and the page to read. Changes
    nothing.

    Exit code 0: all is well; 1: warnings; 2: something fails, or it could not be checked.

    [bold]Examples[/bold]

      holdfast check flights

      holdfast check flights --quick --all

      holdfast check flights --json | jq '.verdicts[] | select(.level != "ok")'
    """
    from state_lib.cli._check import run

    raise typer.Exit(run(app, show_all=show_all, as_json=as_json, quick=quick, timeout_s=timeout))
