"""Asks a person before a restore discards something."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any

from airflow.sdk.exceptions import TaskAwaitingInput

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
        assigned_users: Who may answer, besides what Airflow's roles say; None: all who may.
        response_timeout: How long to wait for an answer; None: for ever.

    Returns (as XCom): ``asked``, whether somebody was, and ``approved``, the ids of the plans that
    were; of an answer also what Airflow's operator returns.
    """

    template_fields: Collection[str] = ("app", "plans")
    ui_color = "#f5efcf"

    def __init__(self, *, app: str, plans: Any, **kwargs: Any) -> None:
        if given := sorted({"defaults", "subject", "body"} & kwargs.keys()):
            raise ValueError(
                f"{', '.join(given)} of {type(self).__name__}: its text is the plan's, and no "
                "answer is taken for granted. Leave it out"
            )
        super().__init__(subject=f"Restore of {app}", **kwargs)
        self.app = app
        self.plans = plans

    def execute(self, context: Context) -> Any:
        """Ask, if there is something to ask.

        Raises:
            AirflowException: these are no plans.
            AirflowFailException: it may have asked before.
        """
        with as_airflow():
            plans = plans_of(self.plans)
        if not any(one.discards for one in plans):
            self.log.info("Nothing is discarded: nobody needs to be asked")
            return {"asked": False, "approved": []}
        self.subject, self.body = question(self.app, plans), as_markdown(plans)
        try:
            return super().execute(context)
        except TaskAwaitingInput as waiting:  # whose plans may be others by the time of the answer
            waiting.kwargs = {"asked": [one.id for one in plans]}
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
    losing = [one.task for one in plans if one.discards]
    return f"Restore {app}? What is there now of {', '.join(losing)} is discarded"
