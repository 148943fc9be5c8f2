"""``holdfast snapshot``: create, list, verify, prune, savepoint."""

from __future__ import annotations

from typing import Annotated

import typer

FAILED = 1
group = typer.Typer(
    no_args_is_help=True, rich_markup_mode="rich", help="Snapshots of stores in object storage."
)

App = Annotated[str, typer.Argument(metavar="APP", help="Application.")]
Task = Annotated[int | None, typer.Option("--task", min=0, help="One task. Default: all.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def register(app: typer.Typer) -> None:
    """Add the command group."""
    app.add_typer(group, name="snapshot")


@group.command()
def create(app: App, task: Task = None, as_json: AsJson = False) -> None:
    """Have each task's owner take a snapshot; commits go on meanwhile.

    Only what storage does not hold already is uploaded. Exit code 1 if a task has none now.

    [bold]Examples[/bold]

      holdfast snapshot create flights

      holdfast snapshot create flights --task 3 --json
    """
    from state_lib.cli import _snapshot as shown
    from state_lib.client.snapshots import SnapshotClient

    settings = shown.settings()
    client = SnapshotClient(settings, app)
    with shown.bars(as_json=as_json) as watch:
        jobs = client.create(None if task is None else [task], watch)
    shown.jobs(jobs, as_json=as_json)
    if any(job["error"] for job in jobs):
        raise typer.Exit(FAILED)


@group.command(name="list")
def list_(app: App, task: Task = None, as_json: AsJson = False) -> None:
    """Show what could be restored: complete snapshots, newest first, and savepoints.

    [bold]Examples[/bold]

      holdfast snapshot list flights

      holdfast snapshot list flights --task 0 --json | jq '.snapshots[0].id'
    """
    from state_lib.cli import _snapshot as shown
    from state_lib.snapshots.listing import list_snapshots
    from state_lib.snapshots.savepoints import list_savepoints

    url = shown.settings().snapshots_url
    manifests = [m for p in shown.tasks(url, app, task) for m in list_snapshots(url, app, p)]
    shown.listing(url, manifests, list_savepoints(url, app), as_json=as_json)


@group.command()
def verify(
    app: App,
    snapshot: Annotated[
        str | None, typer.Argument(metavar="[ID]", help="Of a snapshot or savepoint. Default: all.")
    ] = None,
    deep: Annotated[
        bool, typer.Option("--deep", help="Read every byte and compare SHA-256.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Check that snapshots are whole: files and sizes, with --deep every byte.

    Names also what is not listed because it is not whole. Exit code 1 if anything is wrong. With
    --deep a file whose content was changed is set aside: the next snapshot uploads it anew.

    [bold]Examples[/bold]

      holdfast snapshot verify flights

      holdfast snapshot verify flights 20260131T120000000Z-1a2b3c4d --deep
    """
    from state_lib.cli import _snapshot as shown
    from state_lib.snapshots.verification import verify_snapshots

    url = shown.settings().snapshots_url
    with shown.bars(as_json=as_json) as watch:
        found = verify_snapshots(url, app, snapshot, deep=deep, watch=watch)
    shown.verified(found, as_json=as_json)
    if any(one["problems"] for one in found):
        raise typer.Exit(FAILED)


@group.command()
def prune(
    app: App,
    keep: Annotated[int, typer.Option("--keep", min=1, help="Newest snapshots kept, per task.")],
    daily: Annotated[
        int, typer.Option("--daily", min=0, help="Days whose newest snapshot is kept.")
    ] = 0,
    savepoints: Annotated[
        int | None, typer.Option("--savepoints", min=0, help="Savepoints kept. Default: all.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would go.")] = False,
    as_json: AsJson = False,
) -> None:
    """Remove old snapshots, and files that no snapshot of the last day needs.

    Safe beside snapshots and other prunings. Savepoints stay unless --savepoints says how many, and
    so do snapshots that tasks are on their way back to.

    [bold]Examples[/bold]

      holdfast snapshot prune flights --keep 5 --daily 14

      holdfast snapshot prune flights --keep 1 --savepoints 2 --dry-run
    """
    from state_lib.apps.pruning import prune_application
    from state_lib.cli import _snapshot as shown
    from state_lib.snapshots.prune import Retention

    retention = Retention(keep, daily)
    done = prune_application(shown.settings(), app, retention, savepoints=savepoints, dry=dry_run)
    shown.pruned(done, dry=dry_run, as_json=as_json)


@group.command()
def savepoint(
    app: App,
    timeout: Annotated[
        float, typer.Option("--timeout", min=1, help="Seconds to wait for a commit of all tasks.")
    ] = 300.0,
    as_json: AsJson = False,
) -> None:
    """Take every task at one and the same commit: for upgrades, copies, and going back to.

    The job may run or not. It is listed only if complete, and kept until it is pruned.

    [bold]Examples[/bold]

      holdfast snapshot savepoint flights

      holdfast snapshot savepoint flights --json | jq -r .id
    """
    from state_lib.cli import _snapshot as shown
    from state_lib.client.snapshots import SnapshotClient

    settings = shown.settings()
    client = SnapshotClient(settings, app)
    with shown.bars(as_json=as_json) as watch:
        made = client.savepoint(watch, timeout)
    shown.listing(settings.snapshots_url, [], [made], as_json=as_json, one=True)
