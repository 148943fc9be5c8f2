"""Restore plans as they go from task to task, and as people read them in Airflow."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from state_lib.words import size

if TYPE_CHECKING:
    from state_lib.restore.plan import Candidate, RestorePlan


def plans_of(given: Any) -> list[RestorePlan]:
    """What another task has returned. Raises InvalidRequest for what are no plans."""
    from state_lib.restore.plan import RestorePlan  # noqa: PLC0415 - reaches the stores

    return [RestorePlan.from_json(one) for one in given or ()]


def partitions_of(app: str, tasks: Any) -> list[int]:
    """Those that a DAG file, another task or a rendered template names; none: all.

    Raises:
        InvalidRequest: what is no task of the application.
    """
    from state_lib.apps.restoring import partition_of

    if isinstance(tasks, int):  # a template that renders one, 0 as well
        tasks = [tasks]
    named = re.findall(r"[^\s,\[\]'\"]+", tasks) if isinstance(tasks, str) else tasks or ()
    return [partition_of(app, task) for task in named]


def as_markdown(plans: Sequence[RestorePlan]) -> str:
    """What would be done and what would be lost, for who is asked."""
    return "\n".join(line for one in plans for line in _lines(one))


def in_a_line(plan: RestorePlan) -> str:
    """The same in a line, for a log."""
    if plan.is_nothing:
        return (
            f"{plan.task}: nothing to restore, it stands at commit {plan.epoch}/{plan.batch_number}"
        )
    lost = "; ".join(plan.discards) or "nothing"
    return (
        f"{plan.task}: from {plan.choice} to commit {plan.epoch}/{plan.batch_number}: about "
        f"{plan.records:,} records, {size(plan.bytes)}, {plan.seconds:,.1f} s; discards {lost}"
    )


def _lines(plan: RestorePlan) -> list[str]:
    if plan.is_nothing:
        return [f"### {plan.task}: nothing to restore", ""]
    app, _, partition = plan.task.rpartition("/")
    return [
        f"### {plan.task}: from {plan.choice} to commit {plan.epoch}/{plan.batch_number}",
        "",
        *(f"- **discarded**: {what}" for what in plan.discards),
        f"- disk: {size(plan.needed_bytes)} needed, {size(plan.free_bytes)} free",
        "",
        "| source | verdict | records | bytes | seconds | why |",
        "|---|---|--:|--:|--:|---|",
        *map(_row, plan.candidates),
        "",
        f"The same: `holdfast restore plan {app} --task {partition}`",
        "",
    ]


def _row(one: Candidate) -> str:
    numbers = ["", "", ""]
    if one.verdict != "not valid":
        numbers = [f"{one.records:,}", size(one.bytes), f"{one.seconds:,.1f}"]
    return f"| {' | '.join([one.name, one.verdict, *numbers, one.why.replace('|', '/')])} |"
