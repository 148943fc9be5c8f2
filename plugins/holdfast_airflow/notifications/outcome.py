"""What a run of a DAG tells of itself: that it failed or succeeds again, and that it asks somebody.

Not by callbacks of Airflow alone: those of a task whose worker was lost run where DAG files are
parsed, without the state store that knows who was told of what.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from holdfast_airflow.notifications.incident import IncidentNotifier

if TYPE_CHECKING:
    from airflow.sdk import BaseNotifier, Context

    from state_lib.checks.condition import Condition, Name

log = logging.getLogger(__name__)
WHY = "why"
"""Key of the XCom that says why a task failed."""
_LONGEST = 1500


def note_why(context: Context) -> None:
    """Callback of a failed task: keeps what it said. Nobody knows of one whose worker was lost."""
    error: Any = context.get("exception")
    if error is None:
        return
    ti: Any = context["ti"]
    event = error.args[0] if isinstance(error, Exception) and error.args else None
    # Airflow's error of a question that nobody has answered holds the whole event.
    said = event["error"] if isinstance(event, Mapping) and "error" in event else error
    ti.xcom_push(WHY, str(said)[:_LONGEST])


def failed(name: Name, app: str, ti: Any, task: str) -> Condition:
    """That a task failed in the run of a task instance."""
    from state_lib.checks.condition import Condition

    why = ti.xcom_pull(task_ids=task, key=WHY) or "its worker was lost, or somebody ended it"
    return Condition(
        name,
        app,
        ti.dag_id,
        seen=f"task {task} of run {ti.run_id}: {why}",
        needed="a run that succeeds",
        step=f"read that task's log, do what it says, then trigger {ti.dag_id} again",
        page=name,
    )


class Question:
    """One that waits for a person: told once when it is asked, and once when it is over.

    Who cannot be told keeps nobody from being asked, and is not told again: if nobody answers in
    time the run fails, and that is told as well.

    Args:
        app: The application.
        notifiers: Whom to tell; if there are any, the task needs the application's asset as an
            inlet.
    """

    def __init__(self, app: str, notifiers: Sequence[BaseNotifier]) -> None:
        self._app, self._notifiers = app, notifiers

    def asked(self, context: Context, question: str) -> None:
        """A person is waited for. What the same task has asked in earlier runs is over."""
        self._tell(context, question)

    def over(self, context: Context) -> None:
        """It was answered, or nobody is waited for any more."""
        self._tell(context, None)

    def _tell(self, context: Context, question: str | None) -> None:
        if not self._notifiers:
            return
        ti: Any = context["ti"]
        name = f"approval-waiting-{ti.dag_id}-{ti.task_id}"
        notifier = IncidentNotifier(self._app, "approval-waiting", self._notifiers, name)
        now, begun = int(time.time() * 1000), [] if question is None else [self._of(ti, question)]
        try:
            incidents = notifier.incidents(context)
            holds = {one.subject for one in begun}
            incidents.end([one for one in incidents.open if one not in holds], now)
            incidents.begin([one.to_json() for one in begun], now)
            notifier(context)
        except Exception:
            log.warning("Not everybody was told that a person is waited for", exc_info=True)

    def _of(self, ti: Any, question: str) -> Condition:
        from state_lib.checks.condition import Condition

        return Condition(
            "approval-waiting",
            self._app,
            f"{ti.dag_id}.{ti.task_id} of {ti.run_id}",
            seen=question,
            needed="the answer of a person",
            step="read what is asked in Airflow, under Required Actions, and approve or reject it",
            page="approval-waiting",
        )
