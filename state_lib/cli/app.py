"""``holdfast app``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from state_lib.apps.removal import Kind

USAGE = 2
group = typer.Typer(no_args_is_help=True, rich_markup_mode="rich")


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.add_typer(
        group, name="app", help="Applications on these brokers and hosts: look, reset, delete."
    )


App = Annotated[str, typer.Argument(metavar="APP", help="Application.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Stop = Annotated[bool, typer.Option("--stop", help="Ask a driver that runs to stop first.")]
Yes = Annotated[bool, typer.Option("-y", "--yes", help="Do not ask.")]


@group.command(name="list")
def list_(as_json: AsJson = False) -> None:
    """Show every application: whether it runs, its stores and sources, the hosts that hold it.

    [bold]Examples[/bold]

      holdfast app list

      holdfast app list --json | python -m json.tool
    """
    import json

    from rich.console import Console

    from state_lib.apps.catalogue import catalogue
    from state_lib.cli._apps import connect, list_table, listed

    kafka, hosts = connect()
    held = hosts.held()
    found = listed(catalogue(kafka, held), held)
    if as_json:
        typer.echo(json.dumps(found))
    else:
        Console().print(list_table(found))


@group.command()
def describe(app: App, as_json: AsJson = False) -> None:
    """Show one application: its driver, stores, topics with their sizes, tasks on hosts.

    Records are at most that many; bytes are estimated from recent records.

    [bold]Examples[/bold]

      holdfast app describe flights

      holdfast app describe flights --json | jq .topics
    """
    import json

    from rich.console import Console

    from state_lib.cli._apps import connect, describe_tables, described

    found = described(*connect(), app)
    if as_json:
        typer.echo(json.dumps(found))
        return
    for table in describe_tables(found):
        Console().print(table)


@group.command()
def reset(app: App, yes: Yes = False, stop: Stop = False, as_json: AsJson = False) -> None:
    """Take an application's state back to nothing: its next start reads its sources anew.

    Its changelogs, markers, progress and dead letters are deleted, and hosts drop their
    directories. Sources and outputs stay: outputs are written once more. Its job must not run, nor
    what starts it again.

    [bold]Examples[/bold]

      holdfast app reset word_count

      holdfast app reset word_count --stop --yes
    """
    _remove("reset", app, yes=yes, stop=stop, as_json=as_json)


@group.command()
def delete(app: App, yes: Yes = False, stop: Stop = False, as_json: AsJson = False) -> None:
    """Delete an application: all of its topics, and its directories on hosts.

    Sources and outputs stay. Its job must not run.

    [bold]Examples[/bold]

      holdfast app delete word_count

      holdfast app delete word_count --yes --json
    """
    _remove("delete", app, yes=yes, stop=stop, as_json=as_json)


def _remove(kind: Kind, app: str, *, yes: bool, stop: bool, as_json: bool) -> None:
    import json

    from rich.console import Console

    from state_lib.apps.removal import carry_out, plan
    from state_lib.cli._apps import connect, removal_json, removal_tables

    if as_json and not yes:
        typer.echo("Error: with --json nothing is asked: add --yes", err=True)
        raise typer.Exit(USAGE)
    kafka, hosts = connect()
    removal = plan(kafka, hosts, kind, app, stop=stop)
    console = Console()
    if not as_json:
        for shown in removal_tables(removal):
            console.print(shown)
    if not yes:
        typer.confirm(f"{kind} {app}?", abort=True)
    carry_out(kafka, hosts, removal, (lambda _: None) if as_json else typer.echo)
    if as_json:
        typer.echo(json.dumps(removal_json(removal)))
