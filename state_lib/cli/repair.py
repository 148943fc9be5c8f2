"""``holdfast repair``."""

from __future__ import annotations

from typing import Annotated

import typer


def register(app: typer.Typer) -> None:
    """Add the commands."""
    commands = typer.Typer(no_args_is_help=True, rich_markup_mode="rich")
    commands.command(name="changelog")(changelog)
    commands.command(name="topology")(topology)
    commands.command(name="config")(config)
    text = "Put right what Kafka lost, from hosts' copies, and how its topics are set."
    app.add_typer(commands, name="repair", help=text)


def changelog(
    app: Annotated[str, typer.Argument(metavar="APP", help="Application.")],
    task: Annotated[
        list[int] | None,
        typer.Option("--task", "-t", help="Only this task; may be repeated. Without it: all."),
    ] = None,
    store: Annotated[
        list[str] | None,
        typer.Option("--store", "-s", help="Only this store's changelog; may be repeated."),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print JSON, one event a line; needs --yes to repair.")
    ] = False,
) -> None:
    """Rebuild changelogs and markers that were deleted, cut or created again.

    Each task's host writes all live entries of its local copy, reads them back and compares, and
    only then writes the marker that makes the new log count. The copy has to stand at the newest
    commit, and is kept. Topics that do not exist are created. May be stopped and run again.

    Exit code 0: nothing is lost any more; 1: something is, or its host cannot be asked.

    [bold]Examples[/bold]

      holdfast repair changelog flights

      holdfast repair changelog flights --task 2 --store aircraft --yes

      holdfast repair changelog flights --yes --json
    """
    from state_lib.cli._repair import Repairs

    repairs = Repairs(app, task, store, as_json=as_json)
    work = repairs.show()
    if work and not yes:
        if as_json:
            raise typer.Exit(1)
        typer.confirm("Write them anew?", abort=True, err=True)
    repairs.run(work)


def topology(
    app: Annotated[str, typer.Argument(metavar="APP", help="Application.")],
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print JSON, one event a line; needs --yes to repair.")
    ] = False,
) -> None:
    """Write the topology topic anew after it was deleted: what the last driver had declared.

    All hosts are asked for the claim that they remember, and the newest one is written behind as
    many offsets as there were epochs: the next driver's epoch is higher than what tasks stand at,
    and its job is compared with what was declared. No driver may run. May be stopped and run again.

    Exit code 0: the topic holds the newest claim; 1: it does not.

    [bold]Examples[/bold]

      holdfast repair topology flights

      holdfast repair topology flights --yes --json
    """
    from state_lib.cli._repair_topology import repair

    repair(app, yes=yes, as_json=as_json)


def config(
    app: Annotated[str, typer.Argument(metavar="APP", help="Application.")],
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print JSON, one event a line; needs --yes to repair.")
    ] = False,
) -> None:
    """Set topics of an application as they have to be: shows the difference, asks, checks again.

    Only topics that the application owns are altered, never sources or outputs. Commits and queries
    go on. What no setting can put right is for 'holdfast check'.

    Exit code 0: the settings are as they have to be; 1: they are not.

    [bold]Examples[/bold]

      holdfast repair config flights

      holdfast repair config flights --yes --json
    """
    from state_lib.cli._repair_config import repair

    repair(app, yes=yes, as_json=as_json)
