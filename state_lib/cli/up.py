"""``holdfast up``."""

from __future__ import annotations

from typing import Annotated

import typer


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(name="up")(up)


def up(
    only: Annotated[
        list[str] | None, typer.Option(help="Start this service only; may be repeated.")
    ] = None,
    wait: Annotated[bool, typer.Option(help="Wait until each service is healthy.")] = True,
    timeout: Annotated[float, typer.Option(help="Seconds that each service may take.")] = 120.0,
) -> None:
    """Start the local stack: Kafka, the state hosts, and Airflow.

    It goes on when the terminal closes; services that crash are started again.
    What runs already is left alone.

    [bold]Examples[/bold]

      holdfast up

      holdfast up --only kafka

      HOLDFAST_KAFKA_PORT=29092 holdfast --home /tmp/other up
    """
    from rich.console import Console

    from state_lib.cli._status_table import show
    from state_lib.config import Settings
    from state_lib.stack import Stack, archiving

    console = Console()
    settings = Settings.load()
    stack = Stack(settings)
    with console.status("local stack") as spinner:
        status = stack.up(
            only=only,
            wait=wait,
            timeout_s=timeout,
            report=lambda name, phase: spinner.update(f"{name}: {phase}"),
        )
    if only is None and archiving.is_missing(settings):
        archiving.make_beside(settings)  # a minute of work that nobody waits for
    show(console, status)
