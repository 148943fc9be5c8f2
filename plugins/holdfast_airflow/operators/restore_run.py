"""Carries restores out."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, NoReturn

from airflow.sdk import BaseNotifier, BaseOperator
from airflow.sdk.exceptions import (
    AirflowException,
    AirflowFailException,
    AirflowSkipException,
    TaskAwaitingInput,
)
from airflow.sdk.execution_time.hitl import upsert_hitl_detail

from holdfast_airflow.errors import as_airflow
from holdfast_airflow.hooks.holdfast import HoldfastHook, existing
from holdfast_airflow.notifications.outcome import Question
from holdfast_airflow.operators.approval import ApproveOnceOperator, refuse_second_question
from holdfast_airflow.operators.restore_approve import question
from holdfast_airflow.plans import as_markdown, in_a_line, plans_of
from holdfast_airflow.triggers.restore import RestoreTrigger
from holdfast_airflow.watched import app_asset

if TYPE_CHECKING:
    from airflow.sdk import Context

    from state_lib.restore.plan import RestorePlan

APPROVE, REJECT = ApproveOnceOperator.APPROVE, ApproveOnceOperator.REJECT


class RestoreOperator(BaseOperator):
    """Lets the owning hosts carry out exactly these plans, and follows them from the triggerer.

    Rows and percent are in the task's log. The hosts go on whatever happens to Airflow, and a plan
    is carried out once: a task that is run again, after its worker or the triggerer was killed or
    because somebody cleared it, finds the restore that runs or is done. A host that was killed in
    the middle is asked once more when it is back.

    A plan that would do something else by now is refused by its host. It is planned anew, a few
    times at most; if the new one discards something a person is asked, in this task.

    Args:
        app: The application's id.
        plans: The output of a `PlanRestoreOperator`; what needs nothing is left alone.
        approved: The output of an `ApproveRestoreOperator`. If a plan discards something and is not
            in it, a person is asked, in this task.
        source: As of the `PlanRestoreOperator`, for plans that are made anew.
        max_replans: How often it is planned anew until the task fails.
        assigned_users, notifiers: As of `ApproveRestoreOperator`.
        response_timeout: How long to wait for an answer; then the task fails. None: for ever.
        conn_id: The Holdfast connection; where there is none, the worker's own settings count.
        env: ``HOLDFAST_*`` variables that win over the connection.

    Returns (as XCom): for each task that was restored ``{task, source, records, seconds, marker}``.
    """

    template_fields: Sequence[str] = (
        "app",
        "plans",
        "approved",
        "source",
        "conn_id",
        "env",
    )
    ui_color = "#cfe8d8"

    def __init__(  # noqa: PLR0913 - an operator has options
        self,
        *,
        app: str,
        plans: Any,
        approved: Any = None,
        source: str | None = None,
        max_replans: int = 3,
        assigned_users: Any = None,
        response_timeout: timedelta | None = None,
        notifiers: Sequence[BaseNotifier] = (),
        conn_id: str = HoldfastHook.default_conn_name,
        env: dict[str, str] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.app = app
        self.plans = plans
        self.approved = approved
        self.source = source
        self.max_replans = max_replans
        alone = isinstance(assigned_users, dict)  # as Airflow's operator takes it
        self.assigned_users: Any = [assigned_users] if alone else assigned_users
        self.response_timeout = response_timeout
        self.question = Question(app, notifiers)
        if notifiers:
            self.inlets = [*self.inlets, app_asset(app)]
        self.conn_id = conn_id
        self.env = env or {}

    def execute(self, context: Context) -> list[dict[str, Any]]:
        """Defer; returns only if there is nothing to do.

        Raises:
            AirflowException: these are no plans.
            AirflowFailException: somebody would have to be asked, in a task that may have asked.
        """
        self.question.over(context)  # of an earlier try or run
        with as_airflow():
            plans = [one for one in plans_of(self.plans) if not one.is_nothing]
        if not plans:
            self.log.info("%s: nothing to restore", self.app)
            return []
        for one in plans:
            self.log.info("%s", in_a_line(one))
        kept: dict[str, Any] = {"results": [], "replans": 0, "asked": False}
        approved = (self.approved or {}).get("approved", ())
        if any(one.discards and one.id not in approved for one in plans):
            self._ask(context, plans, kept)
        return self._follow(plans, kept)

    def resume(self, context: Context, event: dict[str, Any]) -> list[dict[str, Any]]:
        """Go on after all that ran have ended.

        Raises:
            AirflowFailException: plans went stale again and again, or somebody would have to be
                asked for the second time.
            AirflowException: a restore failed; a retry goes on with what is left.
        """
        for line in event["told"]:
            self.log.info("%s", line)
        kept, ended = event["kept"], event["restores"]
        kept["results"] += [one for one in ended if one["state"] == "done"]
        if failed := [one for one in ended if one["state"] == "failed"]:
            raise AirflowException("; ".join(f"{one['task']}: {one['why']}" for one in failed))
        if stale := [one for one in ended if one["state"] == "stale"]:
            self._plan_anew(context, stale, kept)
        results: list[dict[str, Any]] = kept["results"]
        return results

    def answered(
        self,
        context: Context,
        event: dict[str, Any],
        plans: list[dict[str, Any]],
        kept: dict[str, Any],
    ) -> list[dict[str, Any]]:
        """A person has answered, or nobody has.

        Raises:
            AirflowFailException: nobody has.
            AirflowSkipException: the answer was no, and nothing was restored before.
        """
        self.question.over(context)
        if "error" in event:
            raise AirflowFailException(
                f"{self.app}: nobody has answered: {event['error']} Silence approves nothing; a "
                "new run asks anew"
            )
        who = (event.get("responded_by_user") or {}).get("name", "somebody")
        if event.get("timedout") or event.get("chosen_options") != [APPROVE]:
            results: list[dict[str, Any]] = kept["results"]
            if not results:
                raise AirflowSkipException(f"{who} does not want it: nothing is done")
            self.log.info("%s does not want it: nothing more is done", who)
            return results
        self.log.info("%s wants it", who)
        return self._follow(plans_of(plans), kept)

    # ------------------------------------------------------------------ inside

    def _plan_anew(
        self, context: Context, stale: list[dict[str, Any]], kept: dict[str, Any]
    ) -> None:
        """Defer again or ask; returns if nothing is left to do."""
        from state_lib.apps.restoring import ask_plans, partition_of

        kept["replans"] += 1
        if kept["replans"] > self.max_replans:
            raise AirflowFailException(
                f"{self.app}: planned anew {self.max_replans} times, and each plan was out of date "
                f"when its host got it. The last reason: {stale[0]['why']}"
            )
        with as_airflow():
            settings = HoldfastHook(self.conn_id, self.env).settings
            tasks = [partition_of(self.app, one["task"]) for one in stale]
            plans = ask_plans(settings, self.app, tasks, self.source or None)
        for one in plans:
            self.log.info("Planned anew: %s", in_a_line(one))
        plans = [one for one in plans if not one.is_nothing]
        if any(one.discards for one in plans):
            self._ask(context, plans, kept)
        if plans:
            self._follow(plans, kept)

    def _ask(self, context: Context, plans: list[RestorePlan], kept: dict[str, Any]) -> NoReturn:
        refuse_second_question(context)
        if kept["asked"]:  # Airflow would show the first question of this task
            raise AirflowFailException(
                f"{self.app}: what was approved in this task is out of date, and a task asks once: "
                "a new run asks anew"
            )
        ti: Any = context["ti"]
        subject = question(self.app, plans)
        self.question.asked(context, subject)
        upsert_hitl_detail(
            ti_id=ti.id,
            options=[APPROVE, REJECT],
            subject=subject,
            body=as_markdown(plans),
            params={},
            assigned_users=self.assigned_users,
        )
        raise TaskAwaitingInput(
            method_name="answered",
            timeout=self.response_timeout,
            kwargs={
                "plans": [one.to_json() for one in plans],
                "kept": {**kept, "asked": True},
            },
        )

    def _follow(self, plans: list[RestorePlan], kept: dict[str, Any]) -> NoReturn:
        self.defer(
            trigger=RestoreTrigger(
                app=self.app,
                plans=[one.to_json() for one in plans],
                conn_id=existing(self.conn_id),
                env=self.env,
                kept=kept,
            ),
            method_name="resume",
        )
        raise AssertionError  # `defer` raises
