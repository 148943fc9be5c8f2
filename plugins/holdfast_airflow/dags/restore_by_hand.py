"""The DAG by which a person restores tasks, or takes them back in time."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from airflow.sdk import DAG, BaseNotifier, Param, TriggerRule
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException

from holdfast_airflow.hooks.holdfast import HoldfastHook
from holdfast_airflow.operators.restore import (
    ApproveRestoreOperator,
    GoBackOperator,
    PlanPastOperator,
    PlanRestoreOperator,
    ReportRestoreOperator,
    RestoreOperator,
)
from holdfast_airflow.operators.tell import told_of

if TYPE_CHECKING:
    from airflow.sdk import Context

BY_HAND_DOC = """
### Restore `{app}` by hand

Trigger it with the tasks, and either a source or a moment to go back to. Nothing is done before a
person has read the plan and approved it, under *Required actions*; nothing is approved by itself.
Unanswered {within} the run fails.

- **tasks**: partitions, such as `[0, 2]`; none: all.
- **source**: `local`, `snapshot` (the newest valid one), `changelog`, or the id of a snapshot: the
  present state is built anew from it. None: the cheapest valid source.
- **to**: back in time, to a savepoint, to one task's snapshot, or to a time, such as
  `2026-01-31T12:00:00Z`: of each task the newest snapshot at or before it. The driver ends at a
  batch's edge, and the one that its supervisor starts next reads on from there.
- **republish**, with `to`: write outputs again that were written since.

`plan` and `restore` bring the present state, `plan_past` and `go_back` another one; whichever is
not wanted is skipped. `report` compares digests with the changelogs, and sees the stream go on.
`holdfast restore run {app}` does the same.
"""
SOURCE = r"^(local|changelog|snapshot|\d{8}T\d{9}Z-[0-9a-f]{8})$"
MOMENT = r"^\d{4}"
ANY = TriggerRule.NONE_FAILED_MIN_ONE_SUCCESS
"""After one of two that are not both wanted."""


def restore_by_hand_dag(
    app: str,
    *,
    notifiers: Sequence[BaseNotifier] = (),
    answer_within: timedelta | None = timedelta(hours=1),
    assigned_users: Any = None,
    conn_id: str = HoldfastHook.default_conn_name,
    tags: Sequence[str] = (),
    **dag: Any,
) -> DAG:
    """The DAG ``<app>_restore_by_hand``: plan, approve, restore or go back, report.

    Args:
        app: The application's id.
        notifiers: Whom to tell that a run failed, that one succeeds again, and that a person is
            waited for: any notifiers of Airflow; see `IncidentNotifier`.
        answer_within: How long a person is waited for; None: for ever.
        assigned_users: Who may answer, besides what Airflow's roles say; None: all who may.
        conn_id: The Holdfast connection.
        tags: Besides ``holdfast`` and ``restore``.
        dag: More arguments of the DAG.
    """
    within = "it waits for ever; with `answer_within`"
    if answer_within is not None:
        within = f"for {answer_within.total_seconds() / 3600:g} h"
    given: dict[str, Any] = {
        "description": f"Restores {app}, or takes it back in time, once a person has approved it",
        "doc_md": BY_HAND_DOC.format(app=app, within=within),
        "catchup": False,
        "max_active_runs": 1,
        "tags": ["holdfast", "restore", *tags],
        "params": _params(),
        "default_args": {"retries": 5, "retry_delay": timedelta(seconds=10)},
    }
    here: dict[str, Any] = {"app": app, "conn_id": conn_id}
    asked: dict[str, Any] = {
        "response_timeout": answer_within,
        "assigned_users": assigned_users,
        "notifiers": notifiers,
    }
    tasks, source = "{{ params.tasks or [] }}", "{{ params.source or '' }}"
    with DAG(f"{app}_restore_by_hand", schedule=None, **{**given, **dag}) as made:
        plan = PlanRestoreOperator(
            task_id="plan", tasks=tasks, source=source, pre_execute=_if_present, **here
        )
        plan_past = PlanPastOperator(
            task_id="plan_past",
            tasks=tasks,
            to="{{ params.to or '' }}",
            republish="{{ params.republish }}",
            pre_execute=_if_past,
            **here,
        )
        approve = ApproveRestoreOperator(
            task_id="approve",
            app=app,
            plans=plan.output,
            journey=plan_past.output,
            always=True,
            trigger_rule=ANY,
            retries=0,
            **asked,
        )
        restore = RestoreOperator(
            task_id="restore",
            plans=plan.output,
            approved=approve.output,
            source=source,
            **asked,
            **here,
        )
        go_back = GoBackOperator(
            task_id="go_back", journey=plan_past.output, approved=approve.output, **here
        )
        ReportRestoreOperator(
            task_id="report",
            restores=[restore.output, go_back.output],
            trigger_rule=ANY,
            **here,
        )
        told_of(made, app, "restore-failed", notifiers, {"report": "success"})
    return made


def _params() -> dict[str, Param]:
    return {
        "tasks": Param(
            None,
            type=["null", "array"],
            items={"type": "integer", "minimum": 0},
            description="Partitions, such as [0, 2]; none: all.",
        ),
        "source": Param(
            None,
            type=["null", "string"],
            pattern=SOURCE,
            description="local, snapshot, changelog or the id of a snapshot; none: the cheapest.",
        ),
        "to": Param(
            None,
            type=["null", "string"],
            pattern=MOMENT,
            description="Back in time: ISO 8601, or the id of a savepoint or a snapshot.",
        ),
        "republish": Param(
            default=False,
            type="boolean",
            description="With 'to': write outputs again that were written since.",
        ),
    }


def _if_present(context: Context) -> None:
    """What does not go together is refused; skipped if it goes back in time."""
    params: Any = context["params"]
    if params["to"] and params["source"]:
        raise AirflowFailException(
            f"to={params['to']} and source={params['source']}: a restore either goes back in time, "
            "or brings the present state from a source; leave one of them out"
        )
    if params["republish"] and not params["to"]:
        raise AirflowFailException("republish without to: only what is read again has outputs")
    if params["to"]:
        raise AirflowSkipException("it goes back in time")


def _if_past(context: Context) -> None:
    """Skipped if it does not go back in time."""
    if not context["params"]["to"]:
        raise AirflowSkipException("it does not go back in time")
