"""Approval by a person, who has read what is approved."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow.providers.standard.operators.hitl import ApprovalOperator  # noqa: TID253 - 5 ms
from airflow.sdk.exceptions import AirflowFailException

if TYPE_CHECKING:
    from airflow.sdk import Context


class ApproveOnceOperator(ApprovalOperator):
    """Airflow's own, which asks in the first try of its task only.

    A task that is cleared asks in vain: see `refuse_second_question`.
    """

    def execute(self, context: Context) -> Any:
        """Ask.

        Raises:
            AirflowFailException: this is not the first try.
        """
        refuse_second_question(context)
        return super().execute(context)


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
