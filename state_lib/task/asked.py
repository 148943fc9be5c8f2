"""A requested restore, by a plan that was made, and maybe approved, some time before."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from state_lib.errors import InvalidRequest, PlanStale, Quarantined
from state_lib.protocol.marker import Marker
from state_lib.restore.local import built_by
from state_lib.restore.plan import AUTO, RestorePlan


def require_of(plan: RestorePlan, task: str) -> None:
    """Raise InvalidRequest for a plan of another task."""
    if plan.task != task:
        raise InvalidRequest(
            f"this is a plan for {plan.task}, not for {task}: send it to its host",
            task=task,
            plan=plan.id,
        )


def is_done(plan: RestorePlan, path: Path, offsets: Mapping[str, Sequence[Any]] | None) -> bool:
    """Whether nothing is left to do.

    Either the present directory was built by the plan; or the directory was lost when the plan was
    made, and the task is open again.

    Args:
        plan: the requested one.
        path: the task's directory.
        offsets: changelog topic → its id and end, if the task is open; None: it is closed.

    Raises:
        PlanStale: the open task has other changelogs than the plan, maybe of another Kafka.
    """
    if built_by(path) == plan.id:
        return True
    if offsets is None or not plan.is_rescue:
        return False
    _refuse_other_topics(plan, {topic: str(at[0]) for topic, at in offsets.items()})
    return True


def opened_again(plan: RestorePlan, run: Callable[[str], Marker]) -> Marker:
    """Open a task whose directory a plan has built; PlanStale if it was lost again since then."""
    try:
        return run(AUTO)
    except Quarantined as error:
        why = f"it was carried out, and what it built was lost since: {error.message}"
        raise stale(plan, why) from error


def planned_now(plan: RestorePlan, ask: Callable[[str], RestorePlan]) -> RestorePlan:
    """The plan that the same request gives now. Raises PlanStale if its source became invalid."""
    try:
        return ask(plan.choice)
    except InvalidRequest as error:
        raise stale(plan, error.message) from error


def refuse_if_stale(plan: RestorePlan, now: RestorePlan) -> None:
    """Raise PlanStale if the plan of now does what the old one did not, such as discard state."""
    _refuse_other_topics(plan, _ids(now))
    if now.discards and not plan.discards:
        raise stale(plan, f"it would replace {now.discards[0]}")
    if plan.is_rescue and not now.is_rescue:
        raise stale(plan, "the local directory can be used again, or it was put back")
    if plan.is_rescue and now.discards and plan.discarded_at != now.discarded_at:
        was = f"at commit {plan.discarded_at}" if plan.discarded_at else "that cannot be opened"
        raise stale(plan, f"it would replace {now.discards[0]}; it was made for one {was}")


def stale(plan: RestorePlan, why: str) -> PlanStale:
    """The refusal of a plan, with the reason."""
    app, _, partition = plan.task.rpartition("/")
    return PlanStale(
        f"the plan for {plan.task} from {plan.choice} is not what would be done now: {why}. Plan "
        f"anew: 'holdfast restore plan {app} --task {partition}'",
        task=plan.task,
        plan=plan.id,
        why=why,
    )


def _refuse_other_topics(plan: RestorePlan, after: dict[str, str]) -> None:
    before = _ids(plan)
    if changed := sorted(t for t in before | after if before.get(t) != after.get(t)):
        raise stale(plan, f"the changelogs are not the same any more: {', '.join(changed)}")


def _ids(plan: RestorePlan) -> dict[str, str]:
    return {topic: str(end[0]) for topic, end in plan.offsets.items()}
