"""``holdfast demo``."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from rich.console import Console

    from state_lib.config import Settings

APP = "flights"
FOLLOW_TIMEOUT_S = 600.0


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(name="demo")(demo)


def demo(
    limit: Annotated[
        int | None, typer.Option(min=1000, help="Load only the first flights.")
    ] = None,
    jobs: Annotated[Path, typer.Option(help="Directory of the jobs.")] = Path("jobs"),
) -> None:
    """Real flights through Spark into exactly-once state, from nothing to proof.

    Starts the local stack, loads the 336,776 flights that left New York in 2013, starts the
    stream and leaves it running, shows what the stores hold, and proves by an independent recompute
    that every entry is right. Run it again whenever you like; `holdfast down` ends everything.

    [bold]Examples[/bold]

      holdfast demo

      holdfast demo --limit 20000
    """
    from rich.console import Console

    from state_lib.audit import Totals, audit
    from state_lib.cli._demo_results import results
    from state_lib.cli._jobs import companion
    from state_lib.cli._status_table import table
    from state_lib.cli.load import show
    from state_lib.config import Settings
    from state_lib.stack import Stack

    console = Console()
    started = time.monotonic()
    settings = Settings.load(jobs_dir=jobs)
    stack = Stack(settings)
    _headline(console, "1 of 5  The local stack: Kafka and two state hosts")
    with console.status("starting") as spinner:
        stack.up(report=lambda name, phase: spinner.update(f"{name}: {phase}"))
    _headline(console, "2 of 5  The data: flights in the order in which they left")
    show(companion(APP, "load", jobs, "load").load, APP, limit=limit)
    _headline(console, "3 of 5  The stream: Spark, state hosts, one transaction per task and batch")
    stack.up(only=[APP])
    _follow(console, settings)
    _headline(console, "4 of 5  What the stores hold now")
    for one in results(settings):
        console.print(one)
    _headline(console, "5 of 5  Proof: every entry against an independent recompute")
    with console.status("recomputing with pandas and plain Spark"):
        module = companion(APP, "audit", jobs, "recompute")
        totals = Totals(module.totals_from_csv, module.totals_from_stores)
        report = audit(APP, settings, module.recompute, totals=totals)
    report.print(console)
    status = stack.status()
    console.print(table(status))
    _next_steps(console, settings, status[settings.host_addresses[0].id].pid)
    console.print(f"done in {time.monotonic() - started:.0f} s", style="bold")
    if not report.clean:
        raise typer.Exit(1)


def _headline(console: Console, text: str) -> None:
    console.rule(f"[bold]{text}", align="left")


def _follow(console: Console, settings: Settings) -> None:
    """Show how far the stream is, until every task stands at the end of the topic."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    from state_lib.client.following import Following

    following = Following(settings, APP)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    speed = TextColumn("{task.fields[speed]}")
    began, first = time.monotonic(), None
    with Progress(*columns, speed, console=console) as progress:
        bar = progress.add_task(APP, total=None, speed="Spark is starting (10 to 30 s)")
        while True:
            place = following.look()
            if place is not None:
                first = place.done if first is None else first
                rate = (place.done - first) / max(time.monotonic() - began, 1e-3)
                speed_text = f"{rate:,.0f}/s" if place.done > first else "waiting for a batch"
                progress.update(bar, total=place.total, completed=place.done, speed=speed_text)
                if place.at_the_end:
                    return
            if time.monotonic() - began > FOLLOW_TIMEOUT_S:
                from state_lib.errors import Unavailable

                raise Unavailable(
                    f"the stream has not caught up in {FOLLOW_TIMEOUT_S:.0f} s; it goes on. Look "
                    f"at `holdfast logs {APP}`, then run `make demo` again"
                )
            time.sleep(0.5)


def _next_steps(console: Console, settings: Settings, pid: int | None) -> None:
    first = settings.host_addresses[0]
    console.print(
        f"\n[bold]Open[/bold]\n"
        f"  {first.http_url}/v1/apps/{APP}/stores   stores, tasks, positions\n"
        f"  {first.http_url}/openapi.json           the query API of a state host\n"
        f"  {first.http_url}/metrics                its metrics, in Kafka Streams' words\n"
        f"  http://127.0.0.1:{settings.spark_ui_port}                         Spark's own page\n"
        f"\n[bold]Try next[/bold] (after: source .venv/bin/activate)\n"
        f"  holdfast query {APP} aircraft N725MQ        one aircraft, live\n"
        f"  kill -9 {pid}; holdfast audit {APP}      kill {first.id}: it comes back, still right\n"
        f"  cat jobs/{APP}.py                             the whole job\n"
        f"\nThe stream goes on until [bold]make down[/bold].\n",
        highlight=False,
    )
