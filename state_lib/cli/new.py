"""``holdfast new``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(name="new")(new)


def new(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Of the application.")],
    folder: Annotated[
        Path | None, typer.Option("--dir", help="Where to write it. [dim]Default: ./NAME[/dim]")
    ] = None,
) -> None:
    """Write a small pipeline of your own: job, loader, DAGs, configuration, tests.

    Nothing that exists is overwritten.

    [bold]Examples[/bold]

      holdfast new page_views

      holdfast new page_views --dir ~/pipelines/views
    """
    from rich.console import Console

    from state_lib.project import write_project

    target = (folder or Path(name)).expanduser()
    console = Console(soft_wrap=True, highlight=False)
    for path in write_project(name, target):
        console.print(f"wrote {target / path}")
    console.print(
        f"\n[bold]Next[/bold]\n"
        f"  cd {target}\n"
        f"  pytest                        the job's tests; they need no Kafka\n"
        f"  holdfast up                   Kafka, state hosts and Airflow on this machine\n"
        f"  holdfast load {name:<15} events to work on\n"
        f"  cat README.md                 the rest"
    )
