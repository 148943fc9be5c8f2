"""``holdfast digest``."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

FAILED, ALARM = 1, 2


class Against(StrEnum):
    """What live stores may be compared with."""

    CHANGELOG = "changelog"
    SNAPSHOT = "snapshot"


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(name="digest")(digest)


def digest(
    app: Annotated[str, typer.Argument(metavar="APP", help="Application.")],
    store: Annotated[str | None, typer.Option(help="One store. Default: all.")] = None,
    against: Annotated[
        Against | None, typer.Option(help="Compare with what this gives, replayed aside.")
    ] = None,
    folder: Annotated[
        Path | None,
        typer.Option("--dir", help="Where a replay's temporary directory is made."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Digest every store at its tasks' newest markers; the application may go on meanwhile.

    A digest is the same whatever the order of entries, the backend, or the source of a restore.
    With --against changelog, each task's changelogs are replayed from their start, in a temporary
    directory, and compared with the live stores at the same positions; a difference is looked at
    once more at a newer marker. --against snapshot does so with each task's newest usable snapshot
    and the changelogs' tails behind it: what a restore would give.

    Exit code 0: done, and nothing differs; 1: a task could not be read, and no total is printed;
    2: a store differs from what it was compared with.

    [bold]Examples[/bold]

      holdfast digest flights

      holdfast digest flights --store aircraft --json | jq .totals

      holdfast digest flights --against changelog --dir /var/tmp

      holdfast digest flights --against snapshot
    """
    from state_lib.apps.catalogue import find
    from state_lib.changelog.claims import topology_of
    from state_lib.cli._apps import connect
    from state_lib.cli._digest import following, show_comparison, show_digests
    from state_lib.config import Settings
    from state_lib.digests.compare import compare
    from state_lib.digests.live import live_digests

    kafka, hosts = connect()
    find(kafka, app)
    topology = topology_of(kafka, app)
    stores = None if store is None else [topology.required(store).name]
    if against is None:
        with following() as report:
            found = live_digests(topology, hosts.addresses, hosts.token, stores, report)
        show_digests(found, as_json=as_json)
        raise typer.Exit(FAILED if found.failed else 0)
    url = Settings.load().snapshots_url if against is Against.SNAPSHOT else None
    with following() as report:
        compared = compare(
            kafka,
            topology,
            hosts.addresses,
            hosts.token,
            stores,
            snapshots_url=url,
            folder=folder,
            report=report,
        )
    show_comparison(compared, as_json=as_json)
    raise typer.Exit(ALARM if compared.alarms else FAILED if compared.failed else 0)
