"""Asks a person before a restore discards something."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any

from airflow.sdk.exceptions import TaskAwaitingInput

from holdfast_airflow import journeys
from holdfast_airflow.errors import as_airflow
from holdfast_airflow.operators.approval import ApproveOnceOperator
from holdfast_airflow.plans import as_markdown, plans_of

if TYPE_CHECKING:
    from airflow.sdk import Context

    from state_lib.restore.plan import RestorePlan


class ApproveRestoreOperator(ApproveOnceOperator):
    """Shows plans to a person and waits for the answer; passes on where nothing is discarded.

    It is asked under *Required actions*, by Airflow's own rules of who may answer. *Approve* goes
    on; *Reject* skips what follows. Silence is never an approval: with ``response_timeout`` the
    task fails. So does a second try, and one that was cleared: `ApproveOnceOperator`.

    Args:
        app: The application's id.
        plans: The output of a `PlanRestoreOperator`.
        journey: The output of a `PlanPastOperator`, instead of plans or beside them.
        always: Ask also where nothing is discarded, unless there is nothing to do.
        assigned_users: Who may answer, besides what Airflow's roles say; None: all who may.
        response_timeout: How long to wait for an answer; None: for ever.
        kwargs: As `ApproveOnceOperator`, such as ``notifiers``.

    Returns (as XCom): ``asked``, whether somebody was, and ``approved``, the ids of what was; of an
    answer also what Airflow's operator returns.
    """

    template_fields: Collection[str] = ("app", "plans", "journey")
    ui_color = "#f5efcf"

    def __init__(
        self,
        *,
        app: str,
        plans: Any = None,
        journey: Any = None,
        always: bool = False,
        **kwargs: Any,
    ) -> None:
        if given := sorted({"defaults", "subject", "body"} & kwargs.keys()):
            raise ValueError(
                f"{', '.join(given)} of {type(self).__name__}: its text is the plan's, and no "
                "answer is taken for granted. Leave it out"
            )
        super().__init__(app=app, subject=f"Restore of {app}", **kwargs)
        self.plans = plans
        self.journey = journey
        self.always = always

    def execute(self, context: Context) -> Any:
        """Ask, if there is something to ask.

        Raises:
            AirflowException: these are no plans.
            AirflowFailException: it may have asked before.
        """
        with as_airflow():
            plans, journey = plans_of(self.plans), journeys.journey_of(self.journey)
        ids = [one.id for one in plans]
        asks = any(one.discards or (self.always and not one.is_nothing) for one in plans)
        if asks:
            self.subject, self.body = question(self.app, plans), as_markdown(plans)
        if journey is not None and journeys.goes(journey):
            asks, ids = True, [*ids, journey.id]
            self.subject, self.body = journeys.headline(journey), journeys.as_markdown(journey)
        if not asks:
            self.log.info("Nothing is discarded: nobody needs to be asked")
            self.question.over(context)  # of an earlier run, which somebody ended
            return {"asked": False, "approved": []}
        try:
            return super().execute(context)
        except TaskAwaitingInput as waiting:  # whose plans may be others by the time of the answer
            waiting.kwargs = {"asked": ids}
            raise

    def execute_complete(
        self, context: Context, event: dict[str, Any], asked: Sequence[str] = ()
    ) -> Any:
        """Somebody has answered; skips what follows after a *Reject*."""
        answer = super().execute_complete(context, event)
        approved = answer["chosen_options"] == [self.APPROVE]
        return {**answer, "asked": True, "approved": list(asked) if approved else []}


def question(app: str, plans: list[RestorePlan]) -> str:
    """The headline."""
    if losing := [one.task for one in plans if one.discards]:
        return f"Restore {app}? What is there now of {', '.join(losing)} is discarded"
    work = [one.task for one in plans if not one.is_nothing]
    return f"Restore {', '.join(work)} of {app}? Nothing is discarded"
