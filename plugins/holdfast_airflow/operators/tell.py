"""Tells how a run of a DAG went."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from airflow.sdk import DAG, BaseNotifier, BaseOperator

from holdfast_airflow.notifications.incident import IncidentNotifier
from holdfast_airflow.notifications.outcome import failed, note_why
from holdfast_airflow.watched import app_asset

if TYPE_CHECKING:
    from airflow.sdk import Context

    from state_lib.checks.condition import Name

TASK = "tell"


class TellOutcomeOperator(BaseOperator):
    """Tells notifiers that a DAG fails, once, and once that it succeeds again.

    A task of the run that failed begins an incident, whose subject is the DAG; later runs that fail
    as well are the same one. Its workers may be lost: what was told to whom is in the state store
    of the application's asset. A notifier that fails is told by the task's retries, or by the next
    run.

    Args:
        app: The application's id. No template: it names an asset.
        condition: Of the incident, such as ``audit-failed``.
        notifiers: Whom to tell: any notifiers of Airflow; see `IncidentNotifier`.
        over_when: A task of the DAG → its state that ends the incident.
    """

    ui_color = "#f5d5d5"

    def __init__(
        self,
        *,
        app: str,
        condition: Name,
        notifiers: Sequence[BaseNotifier],
        over_when: Mapping[str, str],
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.app = app
        self.condition = condition
        self.notifiers = list(notifiers)
        self.over_when = dict(over_when)
        self.inlets = [*self.inlets, app_asset(app)]

    def execute(self, context: Context) -> None:
        """Look how the other tasks ended, and tell what is new.

        Raises:
            AirflowException: some could not be told.
        """
        ti: Any = context["ti"]
        found = ti.get_task_states(dag_id=ti.dag_id, run_ids=[ti.run_id])
        states = {task: str(state) for task, state in found.get(ti.run_id, {}).items()}
        notifier = IncidentNotifier(
            self.app, self.condition, self.notifiers, f"{self.condition}-{ti.dag_id}"
        )
        incidents, now = notifier.incidents(context), int(time.time() * 1000)
        bad = [task for task in states if states[task] == "failed" and task != ti.task_id]
        if bad:
            begun = failed(self.condition, self.app, ti, bad[0])
            self.log.warning("%s", begun.text)
            incidents.begin([begun.to_json()], now)
        elif any(states.get(task) == state for task, state in self.over_when.items()):
            incidents.end(incidents.open, now)
        notifier(context)


def told_of(
    dag: DAG,
    app: str,
    condition: Name,
    notifiers: Sequence[BaseNotifier],
    over_when: Mapping[str, str],
) -> None:
    """End a DAG with the task `tell`, if there is anybody to tell.

    It is a teardown: it runs however the others ended, and the run is what they made of it.
    """
    if not notifiers:
        return
    last = [task for task in dag.tasks if not task.downstream_task_ids]
    for task in dag.tasks:
        before: Any = task.on_failure_callback
        task.on_failure_callback = [*before, note_why]
    tell = TellOutcomeOperator(
        task_id=TASK,
        app=app,
        condition=condition,
        notifiers=notifiers,
        over_when=over_when,
        retries=4,
        retry_delay=timedelta(seconds=15),
        dag=dag,
    ).as_teardown()
    last >> tell
