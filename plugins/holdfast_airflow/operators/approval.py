"""Approval by a person, who has read what is approved."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from airflow.providers.standard.operators.hitl import ApprovalOperator  # noqa: TID253 - 5 ms
from airflow.sdk import BaseNotifier
from airflow.sdk.exceptions import AirflowFailException

from holdfast_airflow.notifications.outcome import Question
from holdfast_airflow.watched import app_asset

if TYPE_CHECKING:
    from airflow.sdk import Context


class ApproveOnceOperator(ApprovalOperator):
    """Airflow's own, which asks in the first try of its task only.

    A task that is cleared asks in vain: see `refuse_second_question`.

    Args:
        app: The application's id. No template where there are notifiers: it names an asset.
        notifiers: Whom to tell that a person is waited for, once, and once when that is over: any
            notifiers of Airflow; see `IncidentNotifier`. One that fails keeps nobody from being
            asked.
        kwargs: As Airflow's `ApprovalOperator`.
    """

    def __init__(self, *, app: str, notifiers: Sequence[BaseNotifier] = (), **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.app = app
        self.question = Question(app, notifiers)
        if notifiers:
            self.inlets = [*self.inlets, app_asset(app)]

    def execute(self, context: Context) -> Any:
        """Ask.

        Raises:
            AirflowFailException: this is not the first try.
        """
        self.question.over(context)  # of an earlier try: cleared, or its worker was lost
        refuse_second_question(context)
        self.question.asked(context, self.subject)
        return super().execute(context)

    def execute_complete(self, context: Context, event: dict[str, Any]) -> Any:
        """Somebody has answered, or nobody has in time."""
        self.question.over(context)
        return super().execute_complete(context, event)


def refuse_second_question(context: Context) -> None:
    """Fail a task that may have asked before.

    Airflow keeps the text of a task's first question for all its tries, and clears the answer only:
    the person would read of what was planned then, and approve what is planned now. (Airflow's
    ``upsert_hitl_detail``)

    Raises:
        AirflowFailException: this is not the first try.
    """
    tries: int = context["ti"].try_number
    if tries > 1:
        raise AirflowFailException(
            f"this is try {tries} of the task, and Airflow would show the question of the first "
            "one, which may be about something else: nobody is asked, and nothing is done. A new "
            "run asks anew"
        )
