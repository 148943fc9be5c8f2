"""``holdfast stop``."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from state_lib.drivers.here import Here
    from state_lib.drivers.look import Looker
    from state_lib.drivers.sight import Sight

LOOK_EVERY_S = 0.5


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(name="stop")(stop)


def stop(
    app: Annotated[str, typer.Argument(metavar="APP", help="Application.")],
    wait: Annotated[bool, typer.Option("--wait", help="Return when it has stopped.")] = False,
    timeout: Annotated[float, typer.Option(min=1, help="Longest wait, in seconds.")] = 300.0,
    why: Annotated[str, typer.Option(help="For the logs of all who watch.")] = "",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Ask an application's driver to stop when its batch is done, wherever it runs.

    The request goes through Kafka. Whoever supervises the driver, Airflow for example, hears of it
    as well and does not start it again. Exit code 1: it has not stopped in time, and still will.

    [bold]Examples[/bold]

      holdfast stop flights

      holdfast stop flights --wait --timeout 60

      holdfast stop flights --wait --json
    """
    import json

    from state_lib.apps.catalogue import find
    from state_lib.changelog.claims import user_name
    from state_lib.config import Settings
    from state_lib.drivers.control import ask_to_stop
    from state_lib.drivers.here import Here
    from state_lib.drivers.look import Looker
    from state_lib.kafka import Kafka
    from state_lib.logs import configure_logging

    settings = Settings.load()
    configure_logging("ERROR")
    kafka = Kafka.of(settings)
    find(kafka, app)
    looker, here = Looker(settings, app), Here(settings, app)
    try:
        before = looker.look()
        ask_to_stop(kafka, app, why=why or f"holdfast stop, by {user_name()}")
        starting = before.drivers or here.drivers(before)
        after = _wait(looker, here, app, timeout) if wait and starting else looker.look()
    finally:
        looker.close()
    ended = [end for driver in starting if (end := after.end_of(driver)) is not None]
    if as_json:
        ends = [{"id": e.id, "how": e.how, "why": e.why} for e in ended]
        running = list(after.drivers)
        typer.echo(json.dumps({"app": app, "asked": True, "ended": ends, "running": running}))
    elif not starting:
        typer.echo(f"no driver of {app} runs; whoever would start one again is told to leave it")
    elif after.drivers or here.drivers(after):
        typer.echo(f"asked the driver of {app} to stop; it does when its batch is done")
    else:
        said = [f"the driver of {app} has {e.how}: {e.why}" for e in ended]
        typer.echo("\n".join(said) or f"no driver of {app} runs any more")


def _wait(looker: Looker, here: Here, app: str, timeout: float) -> Sight:
    from state_lib.errors import Unavailable

    deadline = time.monotonic() + timeout
    while True:
        sight = looker.look()
        if sight.away is None and not sight.drivers and not here.drivers(sight):
            return sight
        if time.monotonic() > deadline:
            why = sight.away or "its batch is not done yet; see its log, or Spark's page"
            raise Unavailable(
                f"the driver of {app!r} was asked and has not stopped in {timeout:.0f} s: {why}",
                app=app,
                drivers=list(sight.drivers),
            )
        time.sleep(LOOK_EVERY_S)
