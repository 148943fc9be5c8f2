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


def plan(
    app: App,
    task: Task = None,
    source: Source = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON: a list of plans.")] = False,
) -> None:
    """Show how each task would be restored: from where, how much, how long, and what is lost.

    Sources are judged from the cheapest on: the local directory, snapshots, the changelog. Those
    before the chosen one are not valid, and it says why; those after it are not needed. Sizes and
    seconds are estimates. Nothing is changed.

    [bold]Examples[/bold]

      holdfast restore plan flights

      holdfast restore plan flights --task 2 --from changelog

      holdfast restore plan flights --json | jq '.[].source'
    """
    import json

    from rich.console import Console

    from state_lib.cli._restore import ask_plans, plan_view

    plans = ask_plans(app, task, source)
    if as_json:
        typer.echo(json.dumps([p.to_json() for p in plans], indent=2))
        return
    for one in plans:
        Console().print(plan_view(one))


def run(
    app: App,
    task: Task = None,
    source: Source = None,
    yes: Annotated[
        bool, typer.Option("--yes", "-y", help="Do not ask, even if something is discarded.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, one event a line.")] = False,
) -> None:
    """Restore tasks by the plan that `holdfast restore plan` shows, on the hosts that own them.

    Tasks that stand where they should are left alone. Without --yes it asks before a directory is
    replaced. The hosts go on if this command is stopped. Other tasks commit and answer meanwhile.

    [bold]Examples[/bold]

      holdfast restore run flights

      holdfast restore run flights --task 2 --from changelog --yes
    """
    from rich.console import Console

    from state_lib.cli._restore import ask_plans, plan_view
    from state_lib.cli._restore_run import run_plans

    plans = ask_plans(app, task, source)
    work = [p for p in plans if not p.is_nothing]
    if not as_json:
        for one in work:
            Console().print(plan_view(one))
        if not work:
            typer.echo(f"nothing to restore: {len(plans)} tasks of {app} are as they should be")
    if any(p.discards for p in work) and not yes:
        typer.confirm("Replace what is listed above?", abort=True, err=True)
    run_plans(app, work, as_json=as_json)
