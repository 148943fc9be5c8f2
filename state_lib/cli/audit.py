"""``holdfast audit``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

DIFFERS, NOT_RUN = 1, 2


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(name="audit")(audit)


def audit(
    name: Annotated[str, typer.Argument(help="The application: jobs/NAME_audit.py recomputes it.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    skip_csv: Annotated[
        bool, typer.Option("--skip-csv", help="Leave out the totals straight from the data.")
    ] = False,
    wait: Annotated[
        float, typer.Option(help="Seconds to wait until all tasks stand at one place.")
    ] = 60.0,
    jobs: Annotated[Path, typer.Option(help="Directory of the jobs.")] = Path("jobs"),
) -> None:
    """Compare every entry of an application with an independent recompute.

    Stores, outputs, dead letters and counts of dropped records; the job may go on meanwhile.
    Exit code 0: all is equal; 1: something differs; 2: the audit could not be made.

    [bold]Examples[/bold]

      holdfast audit flights

      holdfast audit flights --json | jq .clean
    """
    import json

    from confluent_kafka import KafkaException
    from pyspark.errors import PySparkException
    from rich.console import Console

    from state_lib.audit import audit as run
    from state_lib.audit.beside import recompute_of
    from state_lib.config import Settings
    from state_lib.errors import HoldfastError

    try:
        recompute, totals = recompute_of(name, jobs, skip_csv=skip_csv)
        report = run(name, Settings.load(), recompute, totals=totals, wait_s=wait)
    except (HoldfastError, KafkaException, PySparkException, OSError) as error:
        console = Console(stderr=True, soft_wrap=True)
        console.print(f"Error: {error}", style="red", markup=False, highlight=False)
        raise typer.Exit(NOT_RUN) from error
    if as_json:
        typer.echo(json.dumps(report.to_json(), indent=2))
    else:
        report.print()
    if not report.clean:
        raise typer.Exit(DIFFERS)
