"""What ``holdfast restore`` prints."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from state_lib.restore.plan import Candidate, RestorePlan
from state_lib.words import size

_STYLES = {"chosen": "green", "not valid": "red", "not needed": "dim"}


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
        return (
            f"{plan.task}: nothing to restore, it stands at commit {plan.epoch}/{plan.batch_number}"
        )
    return f"{plan.task}: from {plan.choice} to commit {plan.epoch}/{plan.batch_number}"


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
