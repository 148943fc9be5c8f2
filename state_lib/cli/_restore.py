"""What ``holdfast restore`` asks and prints."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from state_lib.changelog.claims import topology_of
from state_lib.client.flight import FlightHostClient
from state_lib.config import Settings
from state_lib.errors import InvalidRequest
from state_lib.host.placement import owner_of
from state_lib.kafka import Kafka
from state_lib.logs import configure_logging
from state_lib.restore.plan import Candidate, RestorePlan
from state_lib.specs import Topology
from state_lib.words import size

_STYLES = {"chosen": "green", "not valid": "red", "not needed": "dim"}


def ask_plans(app: str, tasks: Sequence[int] | None, source: str | None) -> list[RestorePlan]:
    """The plans of some tasks, or of all, from the hosts that own them.

    Raises:
        NotFound: the application never ran.
        InvalidRequest: it has no such task, or the source is not valid for one.
        Unavailable: a host cannot be reached.
    """
    settings = Settings.load()
    configure_logging("ERROR")
    topology = topology_of(Kafka.of(settings), app)
    wanted = require_tasks(topology, tasks)
    token = settings.read_token()

    def ask(task: int) -> RestorePlan:
        client = FlightHostClient(owner_of(app, task, settings.host_addresses), token)
        try:
            return RestorePlan.from_json(client.restore_plan(app, task, source))
        finally:
            client.close()

    with ThreadPoolExecutor(min(8, len(wanted))) as pool:
        return list(pool.map(ask, wanted))


def require_tasks(topology: Topology, tasks: Sequence[int] | None) -> list[int]:
    """Partitions asked for, or all. Raises InvalidRequest for those that there are not."""
    wanted = sorted(set(tasks)) if tasks else list(range(topology.partitions))
    if unknown := [t for t in wanted if not 0 <= t < topology.partitions]:
        raise InvalidRequest(
            f"application {topology.app!r} has tasks 0 to {topology.partitions - 1}, not {unknown}",
            unknown=unknown,
        )
    return wanted


def plan_view(plan: RestorePlan) -> RenderableType:
    """One plan for people."""
    table = Table(title=_title(plan), title_justify="left", title_style="bold")
    for name in ("source", "verdict"):
        table.add_column(name)
    for name in ("records", "bytes", "seconds"):
        table.add_column(name, justify="right")
    table.add_column("why", overflow="fold")
    for one in plan.candidates:
        table.add_row(*_row(one), style=_STYLES[one.verdict])
    lines: list[RenderableType] = [table]
    if plan.steps:
        steps = (f"{s.store} [{s.start}, {s.end})" for s in plan.steps)
        lines.append(Text(f"  replays: {', '.join(steps)}"))
    if plan.needed_bytes:
        free = f"{size(plan.free_bytes)} free"
        lines.append(Text(f"  disk: about {size(plan.needed_bytes)} needed, {free}"))
    lines += [Text(f"  replaced: {what}", style="yellow") for what in plan.discards]
    return Group(*lines, Text())


def _title(plan: RestorePlan) -> str:
    if plan.is_nothing:
        return f"{plan.task}: nothing to restore, it stands at commit {plan.epoch}/{plan.n}"
    return f"{plan.task}: from {plan.choice} to commit {plan.epoch}/{plan.n}"


def _row(one: Candidate) -> tuple[str, ...]:
    if one.verdict == "not valid":
        return one.name, one.verdict, "", "", "", one.why
    return (
        one.name,
        one.verdict,
        f"{one.records:,}",
        size(one.bytes),
        f"{one.seconds:,.1f}",
        one.why,
    )
