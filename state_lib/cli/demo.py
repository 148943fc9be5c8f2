"""``holdfast demo``."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from rich.console import Console

    from state_lib.audit import AuditReport
    from state_lib.config import Settings

APP = "flights"
ALL = 336_776
PATIENCE_S = 120.0
OPERATED = tuple(f"{APP}_{what}" for what in ("watch", "verify", "snapshots", "prune"))
"""DAGs that run from the demo's end on: they look, and keep what a restore needs. The others do
much at once, each day: whoever wants that unpauses them."""


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(name="demo")(demo)


def demo(
    limit: Annotated[
        int | None, typer.Option(min=1000, help="Load only the first flights.")
    ] = None,
    jobs: Annotated[Path, typer.Option(help="Directory of the jobs.")] = Path("jobs"),
    loss: Annotated[
        bool, typer.Option(help="Delete a task's directory, for Airflow to bring it back.")
    ] = True,
) -> None:
    """Real flights through Spark into exactly-once state, from nothing to proof.

    Starts the local stack; has Airflow load the 336,776 flights that left New York in 2013 and run
    the stream, which goes on; shows what the stores hold; deletes the directory of a task, which
    Airflow's restore DAG brings back; and proves by an independent recompute that every entry is
    right. Run it again whenever you like; `holdfast down` ends everything.

    [bold]Examples[/bold]

      holdfast demo

      holdfast demo --limit 20000 --no-loss
    """
    from rich.console import Console
    from stamina.instrumentation import set_on_retry_hooks

    from state_lib.cli._demo_loss import show_loss
    from state_lib.cli._demo_results import results
    from state_lib.cli._demo_run import (
        AIRFLOW_ANSWERS_S,
        Pipeline,
        airflow_of,
        follow,
        operate,
        ready,
    )
    from state_lib.cli._status_table import login_text, table
    from state_lib.config import Settings
    from state_lib.errors import ConfigurationError
    from state_lib.stack import Stack
    from state_lib.stack.airflow import login

    console = Console()
    started = time.monotonic()
    set_on_retry_hooks(())  # the progress bars show it
    settings = Settings.load(jobs_dir=jobs)
    if not settings.airflow:
        message = "the demo goes through Airflow: unset HOLDFAST_AIRFLOW, or set it to true."
        raise ConfigurationError(message, airflow=False)
    stack = Stack(settings)
    _headline(console, "1 of 6  The local stack: Kafka, two state hosts, Airflow")
    with console.status("starting") as spinner:
        stack.up(report=lambda name, phase: spinner.update(f"{name}: {phase}"))
    _headline(console, "2 of 6  Airflow: DAGs flights_load and flights_stream")
    with airflow_of(settings, patience_s=PATIENCE_S) as airflow:
        with console.status("waiting until the DAGs are parsed"):
            ready(airflow, (f"{APP}_load", f"{APP}_stream"), settings)
        load = airflow.trigger(f"{APP}_load", {"limit": limit})
    console.print(login_text(login(settings)), highlight=False, soft_wrap=True)
    _headline(console, "3 of 6  The stream: Spark, state hosts, one transaction per task and batch")
    with airflow_of(settings, patience_s=0, answer_s=AIRFLOW_ANSWERS_S) as airflow:
        follow(console, Pipeline(settings, airflow, APP, load), expected=min(limit or ALL, ALL))
    _headline(console, "4 of 6  What the stores hold now")
    for one in results(settings):
        console.print(one)
    _headline(console, f"5 of 6  A lost disk: DAG {APP}_restore")
    with airflow_of(settings, patience_s=PATIENCE_S) as airflow:
        show_loss(console, stack, airflow, APP, wanted=loss)
    _headline(console, "6 of 6  Proof: every entry against an independent recompute")
    with console.status("recomputing with pandas and plain Spark"):
        report = _audited(settings, jobs)
    report.print(console)
    with airflow_of(settings, patience_s=PATIENCE_S) as airflow:
        operate(airflow, OPERATED)
    status = stack.status()
    console.print(table(status))
    _next_steps(console, settings, status[settings.host_addresses[0].id].pid)
    console.print(f"done in {time.monotonic() - started:.0f} s", style="bold")
    if not report.clean:
        raise typer.Exit(1)


def _audited(settings: Settings, jobs: Path) -> AuditReport:
    from state_lib.audit import Totals, audit
    from state_lib.companions import companion

    module = companion(APP, "audit", jobs, "recompute")
    totals = Totals(module.totals_from_csv, module.totals_from_stores)
    return audit(APP, settings, module.recompute, totals=totals)


def _headline(console: Console, text: str) -> None:
    console.rule(f"[bold]{text}", align="left")


def _next_steps(console: Console, settings: Settings, pid: int | None) -> None:
    from state_lib.cli._status_table import login_text
    from state_lib.stack.airflow import login

    first = settings.host_addresses[0]
    door = login(settings)
    console.print(
        f"\n[bold]Open[/bold]\n"
        f"  {door.url}/dags/{APP}_stream       the stream in Airflow\n"
        f"  {door.url}/dags/{APP}_restore      what brings lost stores back\n"
        f"    {login_text(door)}\n"
        f"  {first.http_url}/v1/apps/{APP}/stores   stores, tasks, positions\n"
        f"  {first.http_url}/openapi.json           the query API of a state host\n"
        f"  {first.http_url}/metrics                its metrics, in Kafka Streams' words\n"
        f"  http://127.0.0.1:{settings.spark_ui_port}                         Spark's own page\n"
        f"\n[bold]Try next[/bold] (after: source .venv/bin/activate)\n"
        f"  holdfast query {APP} aircraft N725MQ        one aircraft, live\n"
        f"  kill -9 {pid}; holdfast audit {APP}      kill {first.id}: it comes back, still right\n"
        f"  cat jobs/{APP}.py                             the whole job\n"
        f"\nThe stream goes on until [bold]make down[/bold], and so do {', '.join(OPERATED)}.\n"
        f"Drills, audits and capacity reports of {APP} are paused: they would run once a day.\n",
        highlight=False,
    )
