"""Watches a condition, and alarms."""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, NoReturn

from airflow.sdk import BaseNotifier, BaseOperator
from airflow.sdk.exceptions import AirflowException, AirflowFailException

from holdfast_airflow.errors import as_airflow
from holdfast_airflow.hooks.holdfast import HoldfastHook, existing
from holdfast_airflow.notifications.incident import IncidentNotifier
from holdfast_airflow.notifications.log import LogNotifier
from holdfast_airflow.sensors.base import ConditionSensor
from holdfast_airflow.triggers.condition import ConditionTrigger
from holdfast_airflow.watched import app_asset

if TYPE_CHECKING:
    from airflow.sdk import Context


class WatchConditionOperator(BaseOperator):
    """Waits in the triggerer, tells notifiers what begins and what is over, and waits again.

    Each incident, a host that is down or a task that is lost, is told once when it begins and once
    when it is over, also if workers or all of Airflow start again in between, or the run is another
    one. Notifiers that fail are tried again by the task's retries. What a person must correct, such
    as a token that hosts refuse, is looked at again by them, too: meanwhile nothing is seen.

    Args:
        app: The application's id. No template: it names an asset.
        sensor: The condition, as the class of its sensor, whose defaults count.
        notifiers: Whom to tell: any notifiers of Airflow; see `IncidentNotifier` for what their
            templates see. Default: the task's log.
        conn_id: The Holdfast connection; where there is none, the worker's own settings count.
        poke_interval: Seconds between looks.
        hold_s: Seconds for which a condition must hold.
        calm_s: Seconds for which it must not hold any more; default ``hold_s``, 10 at least.
        options: More arguments of `state_lib.gathering.sensing.Sense`.
        lasts: After that the task succeeds, for a new run to go on: logs and runs end some time.
        env: ``HOLDFAST_*`` variables that win over the connection.
    """

    template_fields: Sequence[str] = ("conn_id", "env")
    ui_color = "#f5d5d5"

    def __init__(  # noqa: PLR0913 - keywords of a DAG file
        self,
        *,
        app: str,
        sensor: type[ConditionSensor],
        notifiers: Sequence[BaseNotifier] = (),
        conn_id: str = HoldfastHook.default_conn_name,
        poke_interval: float | None = None,
        hold_s: float | None = None,
        calm_s: float | None = None,
        options: dict[str, Any] | None = None,
        lasts: timedelta = timedelta(days=1),
        env: dict[str, str] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**{"max_active_tis_per_dag": 1, **kwargs})
        self.app = app
        self.condition = sensor.condition
        self.notifiers = list(notifiers) or [LogNotifier()]
        self.conn_id = conn_id
        self.poke_interval = sensor.every_s if poke_interval is None else poke_interval
        self.hold_s = sensor.holds_s if hold_s is None else hold_s
        self.calm_s = calm_s
        self.options = options or {}
        self.lasts = lasts
        self.env = env or {}
        self.inlets = [*self.inlets, app_asset(app)]

    def execute(self, context: Context) -> NoReturn:
        """Tell what an earlier try or run could not, then defer.

        Raises:
            AirflowException: a wrong setting, or a notifier failed: the retries go on once somebody
                has corrected it.
        """
        try:
            with as_airflow():
                _ = HoldfastHook(self.conn_id, self.env).settings
        except AirflowFailException as error:  # no retry would follow, and the others watch on
            raise AirflowException(*error.args) from error
        self._notify(context)
        self._watch(context, time.time() + self.lasts.total_seconds())

    def resume(self, context: Context, event: dict[str, Any]) -> None:
        """Tell what is new, then defer again.

        Raises:
            AirflowException: what a person must correct, or a notifier failed; as `execute`.
        """
        if "error" in event:
            raise AirflowException(event["error"])
        now = int(time.time() * 1000)
        incidents = self._notifier.incidents(context)
        for condition in event["conditions"]:
            self.log.warning("%s", condition["text"])
        for subject in event["over"]:
            self.log.info("%s of %s is over: %s", self.condition, self.app, subject)
        incidents.begin(event["conditions"], now)
        incidents.end(event["over"], now)
        self._notify(context)
        if time.time() < event["until"]:
            self._watch(context, event["until"])

    @property
    def _notifier(self) -> IncidentNotifier:
        return IncidentNotifier(self.app, self.condition, self.notifiers)

    def _notify(self, context: Context) -> None:
        self._notifier(context)

    def _watch(self, context: Context, until: float) -> NoReturn:
        self.defer(
            trigger=ConditionTrigger(
                self.app,
                self.condition,
                self.conn_id,
                self.env,
                found=bool(existing(self.conn_id)),
                poke_interval=self.poke_interval,
                hold_s=self.hold_s,
                calm_s=self.calm_s,
                known=self._notifier.incidents(context).open,
                until=until,
                options=self.options,
            ),
            method_name="resume",
        )
