"""Tells notifiers of incidents: each of them once of a beginning, and once of an end."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseNotifier
from airflow.sdk.exceptions import AirflowException

from holdfast_airflow.incidents import Incidents
from holdfast_airflow.watched import app_asset
from state_lib.words import span

if TYPE_CHECKING:
    from airflow.sdk import Context


class IncidentNotifier(BaseNotifier):
    """Wraps any notifiers of Airflow, and tells them what they have not been told of a condition.

    What was told to whom is kept in the state store of the application's asset, which the task must
    have as an inlet: a worker or an Airflow that starts again tells nothing twice. (One that dies
    between telling and noting it does: rather twice than never.)

    Templates of the notifiers, such as ``{{ incident.text }}``, see ``incident``: ``kind``,
    which is ``alarm`` or ``recovery``, ``app``, ``condition``, ``subject``, ``text``; of an alarm
    ``seen``, ``needed``, ``step``, ``document``, ``tasks``, ``hosts``.

    Args:
        app: The application.
        condition: The condition's name.
        notifiers: Whom to tell. Their classes tell them apart; of one class, their order.
        name: Under which it is kept, if another task tells of the same condition.
    """

    def __init__(
        self, app: str, condition: str, notifiers: Sequence[BaseNotifier], name: str | None = None
    ) -> None:
        super().__init__()
        self.app, self.condition = app, condition
        self._name = name or condition
        self._notifiers: dict[str, BaseNotifier] = {}
        for one in notifiers:
            kind = type(one).__name__
            before = sum(type(n).__name__ == kind for n in self._notifiers.values())
            self._notifiers[f"{before}-{kind}"] = one

    def incidents(self, context: Context) -> Incidents:
        """What is known of them, by the context of a task."""
        stores: Any = context["asset_state_store"]
        return Incidents(stores[app_asset(self.app)], self._name)

    def notify(self, context: Context) -> None:
        """Tell what is new; who cannot be told does not keep the others from it.

        Raises:
            AirflowException: some could not be told; the next call tries again, with them alone.
        """
        from state_lib.checks.condition import together

        incidents = self.incidents(context)
        failed: list[str] = []
        for who, notifier in self._notifiers.items():
            try:
                if begun := incidents.to_tell(who):
                    found = together(begun)
                    said = {**found.to_json(), "kind": "alarm", "condition": found.name}
                    _tell(notifier, context, said)
                    incidents.told(who, [c.subject for c in begun], over=False)
                if over := incidents.over_to_tell(who):
                    _tell(notifier, context, self._recovery(over))
                    incidents.told(who, over, over=True)
            except Exception as error:
                self.log.warning("%s was not told", who, exc_info=True)
                failed.append(f"{who}: {error}")
        incidents.tidy(self._notifiers)
        if failed:
            raise AirflowException(
                f"{len(failed)} of {len(self._notifiers)} notifiers failed, and are tried again: "
                + "; ".join(failed)
            )

    def _recovery(self, over: Mapping[str, tuple[int, int]]) -> dict[str, Any]:
        lasted = "; ".join(f"{s} after {span(end - at)}" for s, (at, end) in over.items())
        return {
            "kind": "recovery",
            "app": self.app,
            "condition": self.condition,
            "subject": ", ".join(over),
            "text": f"{self.condition} of {self.app} is over: {lasted}",
        }


def _tell(notifier: BaseNotifier, context: Context, incident: Mapping[str, Any]) -> None:
    """By a copy: to render a notifier's templates changes it for good."""
    given: Any = {**context, "incident": dict(incident)}
    copy.copy(notifier)(given)
