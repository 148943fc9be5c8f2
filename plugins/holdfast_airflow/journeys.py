"""Journeys back in time as they go from task to task, and as people read them in Airflow."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from state_lib.times import iso
from state_lib.words import size

if TYPE_CHECKING:
    from state_lib.apps.past import Journey
    from state_lib.restore.past import PastPlan


def journey_of(given: Any) -> Journey | None:
    """What another task has returned; None: nothing. Raises InvalidRequest for what is none."""
    from state_lib.apps.past import Journey

    return None if given is None else Journey.from_json(given)


def goes(journey: Journey | None) -> bool:
    """Whether any task would go back."""
    return journey is not None and any(not one.is_nothing for one in journey.plans)


def headline(journey: Journey) -> str:
    """The question."""
    going = [one.task for one in journey.plans if not one.is_nothing]
    return f"Take {', '.join(going)} of {journey.app} back in time? The state of now is discarded"


def as_markdown(journey: Journey) -> str:
    """What would be done and what would be lost, for who is asked."""
    lines = [
        f"### {journey.app}: back in time",
        "",
        "| task | snapshot | state of | commit | read again | batches | bytes |",
        "|---|---|---|---|--:|--:|--:|",
        *map(_row, journey.plans),
        "",
        *(f"- **discarded** of {p.task}: {what}" for p in journey.plans for what in p.discards),
        *(
            f"- driver {one} ends at a batch's edge, and is followed by one"
            for one in journey.drivers
        ),
    ]
    return "\n".join([*lines, ""])


def in_a_line(plan: PastPlan) -> str:
    """One task, for a log."""
    if plan.is_nothing:
        return f"{plan.task}: nothing to do, it stands at snapshot {plan.snapshot}"
    return (
        f"{plan.task}: to snapshot {plan.snapshot}, commit {plan.epoch}/{plan.batch_number} of "
        f"{iso(plan.written_at)}: {plan.records:,} offsets are read again; discards "
        f"{'; '.join(plan.discards)}"
    )


def _row(one: PastPlan) -> str:
    commit = f"{one.epoch}/{one.batch_number}"
    cells = [one.task, f"`{one.snapshot}`", "it stands there", commit, "", "", ""]
    if not one.is_nothing:
        again = [f"{one.records:,}", f"{one.batches:,}", size(one.bytes)]
        cells[2:] = [iso(one.written_at) or "", commit, *again]
    return f"| {' | '.join(cells)} |"
