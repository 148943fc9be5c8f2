"""``holdfast pack``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(name="pack")(pack)


def pack(
    output: Annotated[Path, typer.Option(help="The archive to write.")] = Path("executors.tar.gz"),
    extra: Annotated[
        list[str] | None,
        typer.Option("--with", metavar="PACKAGE", help="Of this environment; may be repeated."),
    ] = None,
) -> None:
    """Pack what Spark's executors need, for machines that have no Holdfast.

    They need a Python of this one's minor version. Point the setting `executor_archive` at the
    file: Spark ships it.

    [bold]Examples[/bold]

      holdfast pack

      holdfast pack --output /srv/executors.tar.gz --with geopy
    """
    from rich.console import Console

    from state_lib.project.pack import pack as write

    console = Console(soft_wrap=True, highlight=False)
    with console.status(f"packing {output}"):
        count = write(output, extra or ())
    size = output.stat().st_size / (1 << 20)
    console.print(
        f"{output}: {count} packages, {size:.0f} MiB\n"
        f'Next: executor_archive = "{output.absolute()}" in \\[driver] of holdfast.toml, or '
        f"HOLDFAST_EXECUTOR_ARCHIVE"
    )
