"""``holdfast acls``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from state_lib.acls import Role
    from state_lib.specs import Topology

ROLE = "{role}"


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(name="acls")(acls)


def acls(
    app: Annotated[str, typer.Argument(metavar="APP", help="Application.")],
    role: Annotated[
        list[str] | None,
        typer.Option(help="driver, host, loader, auditor, operator or admin; may be repeated."),
    ] = None,
    principal: Annotated[
        str, typer.Option(help="Who it is for; {role} stands for the role.")
    ] = "User:{role}",
    jobs: Annotated[
        Path | None, typer.Option(help="Directory of the jobs. [dim]Default: jobs_dir[/dim]")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Print the access rights that each role of an application needs in Kafka, and no others.

    The application is read from its job's file, so that rights can be granted before the first
    start: the job is imported, and Spark resolves what it declares, which takes Java and some
    seconds. Where there is no such file, or it cannot be imported here, the brokers are asked.

    [bold]Examples[/bold]

      holdfast acls flights

      holdfast acls flights --role driver --role loader --principal User:flights

      holdfast acls flights --json
    """
    import json
    from dataclasses import asdict

    from state_lib.acls import MEANING, commands, rights
    from state_lib.config import Settings

    settings = Settings.load(jobs_dir=jobs)
    roles = _roles(role)
    topology = _topology(settings.jobs_dir, app)
    needed = {one: rights(topology, one) for one in roles}
    if as_json:
        rows = [
            {"role": one, "principal": principal.replace(ROLE, one), **asdict(right)}
            for one, found in needed.items()
            for right in found
        ]
        typer.echo(json.dumps(rows, indent=2))
        return
    for one, found in needed.items():
        typer.echo(f"# {one}: {MEANING[one]}")
        who = principal.replace(ROLE, one)
        for command in commands(settings.bootstrap_servers, who, found):
            typer.echo(command)


def _roles(chosen: list[str] | None) -> list[Role]:
    from state_lib.acls import ROLES
    from state_lib.errors import InvalidRequest

    unknown = set(chosen or ()) - set(ROLES)
    if unknown:
        raise InvalidRequest(f"no roles {sorted(unknown)}; there are: {', '.join(ROLES)}")
    return [one for one in ROLES if not chosen or one in chosen]


def _topology(folder: Path, app: str) -> Topology:
    from state_lib.changelog.claims import topology_of
    from state_lib.companions import declared
    from state_lib.config import Settings
    from state_lib.errors import NotFound
    from state_lib.kafka import Kafka

    found, why = None, ""
    try:
        found = declared(app, folder)
    except Exception as error:  # noqa: BLE001 - a job is a program of the user's
        why = f"{type(error).__name__}: {error}".partition("\n")[0]
    if found is not None:
        return found.topology
    try:
        there = topology_of(Kafka.of(Settings.load()), app)
    except NotFound as error:
        if not why:
            raise
        raise NotFound(
            f"{error.message}. A job in {folder}/ cannot be read here ({why})"
        ) from error
    if why:
        typer.echo(f"A job in {folder}/ cannot be read here ({why}): as it last ran", err=True)
    return there
