"""The DAG that waits for lost stores, and brings them back."""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from airflow.sdk import DAG, BaseNotifier

from holdfast_airflow.hooks.holdfast import HoldfastHook
from holdfast_airflow.operators.restore import (
    ApproveRestoreOperator,
    PlanRestoreOperator,
    ReportRestoreOperator,
    RestoreOperator,
)
from holdfast_airflow.operators.tell import told_of
from holdfast_airflow.sensors import StoreLostSensor

if TYPE_CHECKING:
    from airflow.sdk import Context

RESTORE_DOC = """
### Restore `{app}`

Waits until a store of `{app}` is lost or corrupt, and brings it back: there is always one run, and
none begins within a minute of the one before.

- **watch**: waits, in the triggerer.
- **plan**: from where each task is restored, and what that would discard; as
  `holdfast restore plan {app}` shows it.
- **approve**: asks a person, under *Required actions*, only if something is discarded. Unanswered
  {within} the run fails, and the next one asks anew. After a *Reject* nothing is done, and the next
  run asks again as long as the store is lost: pause this DAG to be left alone.
- **restore**: the hosts carry out exactly that plan, once, whatever is killed meanwhile.
- **report**: the stores' digests are those of their changelogs, and the stream goes on. It reads
  all of them once more, and until it has ended nothing is sensed: a second loss waits.

Hosts must run with `HOLDFAST_RESTORE_MODE=orchestrated`, else they restore by themselves and this
DAG only waits. It is not paused when it is new: nobody else restores what they leave to it.
"""
SENSED_AT = "sensed_at"


def restore_dag(  # noqa: PLR0913 - keywords of a DAG file
    app: str,
    *,
    notifiers: Sequence[BaseNotifier] = (),
    answer_within: timedelta | None = timedelta(hours=1),
    assigned_users: Any = None,
    conn_id: str = HoldfastHook.default_conn_name,
    tags: Sequence[str] = (),
    doc_md: str = "",
    **dag: Any,
) -> DAG:
    """The DAG ``<app>_restore``: watch, plan, approve, restore, report.

    Args:
        app: The application's id.
        notifiers: Whom to tell once that it fails, once that it succeeds again or nothing was lost
            for a day, and that a person is waited for: any notifiers of Airflow; see
            `IncidentNotifier`. With some the DAG ends with the task `tell`.
        answer_within: How long a person is waited for; None: for ever. Other tasks' stores that are
            lost meanwhile wait as well.
        assigned_users: Who may answer, besides what Airflow's roles say; None: all who may.
        conn_id: The Holdfast connection.
        tags: Besides ``holdfast`` and ``restore``.
        doc_md: Comes first in the DAG's documentation.
        dag: More arguments of the DAG.
    """
    within = "it waits for ever; with `answer_within`"
    if answer_within is not None:
        within = f"for {answer_within.total_seconds() / 3600:g} h"
    given: dict[str, Any] = {
        "description": f"Brings lost stores of {app} back",
        "doc_md": doc_md + RESTORE_DOC.format(app=app, within=within),
        "catchup": False,
        "max_active_runs": 1,
        "max_consecutive_failed_dag_runs": 0,  # paused by Airflow, nobody would restore
        "is_paused_upon_creation": False,
        "tags": ["holdfast", "restore", *tags],
        "default_args": {"retries": 5, "retry_delay": timedelta(seconds=10)},
    }
    here: dict[str, Any] = {"app": app, "conn_id": conn_id}
    asked: dict[str, Any] = {
        "response_timeout": answer_within,
        "assigned_users": assigned_users,
        "notifiers": notifiers,
    }
    # Not continuous: what fails at once would fail thousands of times a day.
    with DAG(f"{app}_restore", schedule=timedelta(minutes=1), **{**given, **dag}) as made:
        watch = StoreLostSensor(
            task_id="watch",
            post_execute=_remember_when,
            timeout=timedelta(days=1),
            soft_fail=True,  # nothing was lost for a day: the next run goes on
            **here,
        )
        plan = PlanRestoreOperator(
            task_id="plan",
            tasks=watch.output,
            unasked_first=True,
            retries=20,  # the host may just look whether the store can be opened
            retry_delay=timedelta(seconds=3),
            **here,
        )
        approve = ApproveRestoreOperator(
            task_id="approve",
            app=app,
            plans=plan.output,
            retries=0,
            **asked,
        )
        restore = RestoreOperator(
            task_id="restore",
            plans=plan.output,
            approved=approve.output,
            **asked,
            **here,
        )
        report = ReportRestoreOperator(
            task_id="report",
            restores=restore.output,
            since="{{ ti.xcom_pull('watch', key='%s') }}" % SENSED_AT,  # noqa: UP031 - braces
            **here,
        )
        watch >> plan >> approve >> restore >> report
        over = {"report": "success", "watch": "skipped"}
        told_of(made, app, "restore-failed", notifiers, over)
    return made


def _remember_when(context: Context, _result: Any) -> None:
    """Of the report: all that follows is what a lost store waits for."""
    ti: Any = context["ti"]
    ti.xcom_push(SENSED_AT, time.time())
