"""What ``holdfast app`` asks and prints."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from typing import Any

from rich.table import Table
from rich.text import Text

from state_lib.apps.catalogue import Known, find
from state_lib.apps.hosts import Held, Hosts
from state_lib.apps.removal import Removal
from state_lib.apps.sizes import TopicSize, foreign_topics, owned_topics, sizes
from state_lib.cli._tables import NO_APPLICATIONS, table, table_or
from state_lib.config import Settings
from state_lib.kafka import Kafka
from state_lib.logs import configure_logging
from state_lib.times import iso

Json = dict[str, Any]


def connect() -> tuple[Kafka, Hosts]:
    """The configured brokers and hosts; library lines would only hide the answer."""
    settings = Settings.load()
    configure_logging("ERROR")
    return Kafka.of(settings), Hosts(settings.host_addresses, settings.read_token())


def listed(known: Sequence[Known], held: Sequence[Held]) -> list[Json]:
    """One object per application."""
    away = [one.host for one in held if one.away is not None]
    return [_summary(one) | {"hosts": list(one.hosts), "hosts_away": away} for one in known]


def list_table(found: Sequence[Json]) -> Table | str:
    """One row per application."""
    rows = [
        {
            "application": f["app"],
            "state": f["state"],
            "partitions": f["partitions"],
            "stores": ", ".join(f["stores"]),
            "sources": ", ".join(f["sources"]),
            "hosts": ", ".join(f["hosts"]),
            "claimed at": f["claimed_at"],
            "by": f["by"],
        }
        for f in found
    ]
    shown = table_or(NO_APPLICATIONS, rows)
    if isinstance(shown, str):
        return shown
    notes = [f"{f['app']}: {f['refused']}" for f in found if f["refused"]]
    if away := found[0]["hosts_away"]:
        notes.append(f"could not be asked: {', '.join(away)}")
    shown.caption = "\n".join(notes) or None
    return shown


def described(kafka: Kafka, hosts: Hosts, app: str) -> Json:
    """Everything that can be said of one application from outside.

    Raises:
        NotFound: there is none; lists those that there are.
    """
    held = hosts.held(app)
    known = find(kafka, app, held)
    out = _summary(known) | {"topics": [], "foreign_topics": [], "store_specs": []}
    if known.claim is not None:
        topology = known.claim.topology
        out["topics"] = [asdict(s) for s in sizes(kafka, owned_topics(topology))]
        out["foreign_topics"] = [asdict(s) for s in sizes(kafka, foreign_topics(topology))]
        out["store_specs"] = [asdict(s) for s in topology.stores]
    out["hosts"] = [_held(one, app) for one in held]
    return out


def describe_tables(found: Json) -> Iterator[Table]:
    """What it is, its topics, its tasks."""
    about = Table(show_header=False)
    facts = {
        "application": found["app"],
        "state": found["state"],
        "epoch": found["epoch"],
        "claimed at": found["claimed_at"],
        "by": found["by"],
        "file": found["file"],
        "drivers": ", ".join(found["drivers"]),
        "partitions": found["partitions"],
    }
    for name, value in facts.items():
        about.add_row(name, Text("" if value is None else str(value)))
    yield about
    yield table(
        {"store": s["name"], "kind": s["kind"], "backend": s["backend"]}
        for s in found["store_specs"]
    )
    yield _topics("topics", [TopicSize(**t) for t in found["topics"]])
    yield _topics("not its own", [TopicSize(**t) for t in found["foreign_topics"]])
    yield _hosts(found["hosts"])


def removal_tables(removal: Removal) -> Iterator[Table | Text]:
    """What goes, what stays, and what should be known before it is agreed to."""
    if removal.goes:
        yield _topics("goes", removal.goes)
    yield _hosts([_held(one, removal.app) for one in removal.hosts], "goes")
    if removal.stays:
        yield _topics("stays", removal.stays)
    for note in removal.notes:
        yield Text(f"Note: {note}.", style="yellow")


def removal_json(removal: Removal) -> Json:
    """What went, what stays."""
    return {
        "app": removal.app,
        "kind": removal.kind,
        "deleted_topics": [asdict(s) for s in removal.goes],
        "kept_topics": [asdict(s) for s in removal.stays],
        "hosts": [_held(one, removal.app) for one in removal.hosts],
        "notes": list(removal.notes),
    }


def _summary(known: Known) -> Json:
    claim = known.claim
    by = {} if claim is None else claim.by
    topology = None if claim is None else claim.topology
    claimed_at = by.get("claimed_at")
    return {
        "app": known.app,
        "state": known.state,
        "refused": known.refused,
        "epoch": None if claim is None else claim.epoch,
        "claimed_at": None if claimed_at is None else iso(claimed_at),
        "by": by.get("driver"),
        "file": by.get("file"),
        "drivers": list(known.drivers),
        "partitions": None if topology is None else topology.partitions,
        "stores": [] if topology is None else [s.name for s in topology.stores],
        "sources": [] if topology is None else list(topology.sources),
        "outputs": [] if topology is None else [o.topic for o in topology.outputs],
    }


def _held(held: Held, app: str) -> Json:
    had = held.apps.get(app, {"directory": None, "bytes": 0, "tasks": []})
    tasks = [
        {"partition": t["partition"], "state": t["waits"] or "open", "marker": t["marker"]}
        for t in had["tasks"]
    ]
    return {
        "host": held.host,
        "away": held.away,
        "directory": had["directory"],
        "bytes": had["bytes"],
        "tasks": tasks,
    }


def _topics(title: str, found: Iterable[TopicSize]) -> Table:
    shown = table(
        {
            "topic": s.topic,
            "role": s.role,
            "partitions": s.partitions,
            "records": f"{s.records:,}",
            "bytes (about)": f"{s.bytes:,}",
        }
        for s in found
    )
    shown.title, shown.title_justify = title, "left"
    return shown


def _hosts(found: Iterable[Json], title: str = "on hosts") -> Table:
    shown = table(
        {
            "host": h["host"],
            "tasks": h["away"] or ", ".join(_task(t) for t in h["tasks"]),
            "directory": h["directory"] or "",
            "bytes": f"{h['bytes']:,}",
        }
        for h in found
    )
    shown.title, shown.title_justify = title, "left"
    return shown


def _task(task: Json) -> str:
    return str(task["partition"]) + ("" if task["state"] == "open" else f" ({task['state']})")
