"""What ``holdfast repair topology`` asks, writes and prints."""

from __future__ import annotations

from typing import Any

import orjson
import typer
from rich.console import Console

from state_lib.apps.lost_topology import LostTopology, look, write
from state_lib.changelog.topics import topology_topic
from state_lib.cli._apps import connect
from state_lib.cli._tables import table_or
from state_lib.config import Settings
from state_lib.times import iso


def repair(app: str, *, yes: bool, as_json: bool) -> None:
    """Show what is lost, ask, and write it.

    Raises:
        typer.Exit: 1 if it would have to ask and must not.
        HoldfastError: as `state_lib.apps.lost_topology`.
    """
    kafka, hosts = connect()
    lost = look(kafka, hosts, app)
    if lost is None:
        whole = f"nothing to repair: topic {topology_topic(app)} holds the newest claim of {app}"
        _line({"event": "whole", "app": app}) if as_json else typer.echo(whole)
        return
    if as_json:
        _line({"event": "loss", **_shown(lost)})
        if not yes:
            raise typer.Exit(1)
    else:
        seen = "holds no claim that tasks stand at" if lost.exists else "does not exist"
        typer.echo(f"topic {topology_topic(app)} {seen}; what would be written to it:")
        Console().print(table_or("", [{"": k, "value": v} for k, v in _shown(lost).items()]))
    if not yes:
        typer.confirm("Write it anew?", abort=True, err=True)
    settings = Settings.load()
    epoch = write(kafka, lost, settings.replication_factor, settings.min_insync_replicas)
    if as_json:
        _line({"event": "done", "app": app, "epoch": epoch})
    else:
        typer.echo(f"repaired: {topology_topic(app)} goes on from epoch {epoch}; start the job")


def _shown(lost: LostTopology) -> dict[str, Any]:
    found = lost.remembered
    declared, by = found.declared, found.declared.extra
    claimed_at = by.get("claimed_at")
    return {
        "app": lost.app,
        "topic": topology_topic(lost.app),
        "exists": lost.exists,
        "tasks_stand_at": lost.stands_at,
        "remembered_by": found.host,
        "epoch": found.epoch,
        "claimed_at": None if claimed_at is None else iso(int(claimed_at)),
        "driver": by.get("driver"),
        "user": by.get("user"),
        "file": by.get("file"),
        "code": by.get("code"),
        "hosts": list(by.get("hosts") or ()),
        "partitions": declared.partitions,
        "stores": [store.name for store in declared.stores],
        "sources": list(declared.sources),
        "outputs": [output.topic for output in declared.outputs],
    }


def _line(event: dict[str, Any]) -> None:
    typer.echo(orjson.dumps(event).decode())
