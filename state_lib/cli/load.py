"""``holdfast load``."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from state_lib.loading import Loaded


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(name="load")(load)


def load(
    name: Annotated[str, typer.Argument(help="Whose data: jobs/NAME_load.py loads it.")],
    limit: Annotated[int | None, typer.Option(min=1, help="Load only the first records.")] = None,
    rate: Annotated[float | None, typer.Option(min=0.1, help="Most records per second.")] = None,
    jobs: Annotated[Path, typer.Option(help="Directory of the jobs.")] = Path("jobs"),
) -> None:
    """Publish a job's data to its source topic, each record once, however often it is run.

    [bold]Examples[/bold]

      holdfast load flights

      holdfast load flights --limit 20000 --rate 1000
    """
    from state_lib.companions import companion

    show(companion(name, "load", jobs, "load").load, name, limit=limit, rate=rate)


def run(function: Callable[..., Loaded], name: str) -> None:
    """The command line of a loader that is run as a script."""

    def command(
        limit: Annotated[int | None, typer.Option(min=1)] = None,
        rate: Annotated[float | None, typer.Option(min=0.1)] = None,
    ) -> None:
        from state_lib.errors import HoldfastError

        try:
            show(function, name, limit=limit, rate=rate)
        except HoldfastError as error:
            typer.secho(f"Error: {error.message}", fg="red", err=True)
            sys.exit(1)

    typer.run(command)


def show(function: Callable[..., Loaded], name: str, **options: Any) -> Loaded:
    """Run a loader behind a progress bar with its rate, and say what it did."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    from state_lib.config import Settings

    console = Console()
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    speed = TextColumn("{task.fields[speed]}")
    started = time.monotonic()
    with Progress(*columns, speed, console=console) as progress:
        bar = progress.add_task(name, total=None, speed="reading")

        def report(done: int, total: int) -> None:
            rate = done / max(time.monotonic() - started, 1e-3)
            progress.update(bar, completed=done, total=total, speed=f"{rate:,.0f}/s")

        loaded = function(Settings.load(), report=report, **options)
    seconds = time.monotonic() - started
    console.print(f"{name}: {loaded.added:,} added, {loaded.found:,} were there, {seconds:.1f} s")
    return loaded
