"""``holdfast restore``."""

from __future__ import annotations

from typing import Annotated

import typer


def register(app: typer.Typer) -> None:
    """Add the commands."""
    commands = typer.Typer(no_args_is_help=True, rich_markup_mode="rich")
    commands.command(name="plan")(plan)
    commands.command(name="run")(run)
    app.add_typer(commands, name="restore", help="See how tasks would be restored, and do it.")


App = Annotated[str, typer.Argument(metavar="APP", help="Application.")]
Task = Annotated[
    list[int] | None,
    typer.Option("--task", "-t", help="Only this task; may be repeated. Without it: all."),
]
Source = Annotated[
    str | None,
    typer.Option(
        "--from",
        metavar="SOURCE",
        help="local, changelog, snapshot (the newest valid one) or the id of one. Without it: the "
        "cheapest valid source.",
    ),
]
To = Annotated[
    str | None,
    typer.Option(
        "--to",
        metavar="SNAPSHOT|TIME",
        help="Go back in time: to a savepoint, to one task's snapshot, or to the newest snapshots "
        "at or before a time (ISO 8601, UTC unless it says so).",
    ),
]
Republish = Annotated[
    bool,
    typer.Option(
        "--republish", help="With --to: write outputs again that were written since that time."
    ),
]


def plan(
    app: App,
    task: Task = None,
    source: Source = None,
    to: To = None,
    republish: Republish = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON: a list of plans.")] = False,
) -> None:
    """Show how each task would be restored: from where, how much, how long, and what is lost.

    Sources are judged from the cheapest on: the local directory, snapshots, the changelog. Those
    before the chosen one are not valid, and it says why; those after it are not needed. Sizes and
    seconds are estimates. Nothing is changed.

    With --to it shows what going back in time would mean: which snapshot each task would have the
    state of, what is read again, whether the sources still hold it, and which driver would end.

    [bold]Examples[/bold]

      holdfast restore plan flights

      holdfast restore plan flights --to 2026-01-31T12:00:00Z

      holdfast restore plan flights --task 2 --from changelog

      holdfast restore plan flights --json | jq '.[].source'
    """
    import json

    from rich.console import Console

    from state_lib.apps.restoring import ask_plans
    from state_lib.cli._restore import plan_view
    from state_lib.cli._restore_past import ask_past, check_options, show_past
    from state_lib.config import Settings
    from state_lib.logs import configure_logging

    configure_logging("ERROR")
    check_options(to, source, republish=republish)
    if to is not None:
        show_past(ask_past(app, task, to, republish=republish), as_json=as_json)
        return
    plans = ask_plans(Settings.load(), app, task, source)
    if as_json:
        typer.echo(json.dumps([p.to_json() for p in plans], indent=2))
        return
    for one in plans:
        Console().print(plan_view(one))


def run(  # noqa: PLR0913, PLR0917 - a command has options
    app: App,
    task: Task = None,
    source: Source = None,
    to: To = None,
    republish: Republish = False,
    yes: Annotated[
        bool, typer.Option("--yes", "-y", help="Do not ask, even if something is discarded.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, one event a line.")] = False,
) -> None:
    """Restore tasks by the plan that `holdfast restore plan` shows, on the hosts that own them.

    Tasks that stand where they should are left alone. Without --yes it asks before a directory is
    replaced. The hosts go on if this command is stopped. Other tasks commit and answer meanwhile.

    With --to the application, or the tasks named, go back in time: the driver ends at a batch's
    edge, stores get the state of a snapshot, and the driver that its supervisor starts next reads
    the sources again from there. Outputs that were written already are not written again unless
    --republish asks for it. May be stopped at any moment and run again.

    [bold]Examples[/bold]

      holdfast restore run flights

      holdfast restore run flights --task 2 --from changelog --yes

      holdfast restore run flights --to 20260131T120000000Z-1a2b3c4d
    """
    from rich.console import Console

    from state_lib.apps.restoring import ask_plans
    from state_lib.cli._restore import plan_view
    from state_lib.cli._restore_past import check_options, go_back
    from state_lib.cli._restore_run import show_run
    from state_lib.config import Settings
    from state_lib.logs import configure_logging

    configure_logging("ERROR")
    check_options(to, source, republish=republish)
    if to is not None:
        go_back(app, task, to, republish=republish, yes=yes, as_json=as_json)
        return
    settings = Settings.load()
    plans = ask_plans(settings, app, task, source)
    work = [p for p in plans if not p.is_nothing]
    if not as_json:
        for one in work:
            Console().print(plan_view(one))
        if not work:
            typer.echo(f"nothing to restore: {len(plans)} tasks of {app} are as they should be")
    if any(p.discards for p in work) and not yes:
        typer.confirm("Replace what is listed above?", abort=True, err=True)
    show_run(settings, app, work, as_json=as_json)
