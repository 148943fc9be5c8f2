"""``holdfast capacity``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(name="capacity")(capacity)


def capacity(
    app: Annotated[str, typer.Argument(metavar="APP", help="Application.")],
    html: Annotated[
        Path | None,
        typer.Option("--html", metavar="FILE", help="Write the page with charts there."),
    ] = None,
    keep: Annotated[
        bool, typer.Option("--keep", help="Keep it with those of before (HOLDFAST_REPORTS_URL).")
    ] = False,
    quick: Annotated[
        bool, typer.Option("--quick", help="Do not read changelogs: their bytes are not known.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON: every figure.")] = False,
) -> None:
    """Show what an application's state takes, how it grows, and how long restores would take.

    Records, bytes on disk, in changelogs and in snapshots; days until disks are full; seconds to
    restore, from measured rates. Growth is told from the reports that were kept before, which
    Airflow's DAG does daily. Changes nothing.

    [bold]Examples[/bold]

      holdfast capacity flights

      holdfast capacity flights --html capacity.html --keep

      holdfast capacity flights --json | jq .totals
    """
    from state_lib.cli._capacity import run

    run(app, html=html, keep=keep, quick=quick, as_json=as_json)
