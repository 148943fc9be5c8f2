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

AGAIN_S = 60.0
"""After that a notifier that failed is tried again; the least that a try lasts as well."""
BLIND_S = 600.0
"""For how long at least nobody can be asked until that is an incident."""


class WatchConditionOperator(BaseOperator):
    """Waits in the triggerer, tells notifiers what begins and what is over, and waits again.

    Each incident, a host that is down or a task that is lost, is told once when it begins and once
    when it is over, also if workers or all of Airflow start again in between, or the run is another
    one. Notifiers that fail are tried again after a minute, then after longer, and keep nobody from
    looking or from being told.

    That nobody could be asked for ten minutes, whether Kafka is away or refuses the log-in, is an
    incident of its own: ``cannot-look``.

    Args:
        app: The application's id. No template: it names an asset.
        sensor: The condition, as the class of its sensor, whose defaults count.
        notifiers: Whom to tell: any notifiers of Airflow; see `IncidentNotifier` for what their
            templates see. Default: the task's log.
        conn_id: The Holdfast connection; without a default one the worker's own settings count.
        poke_interval: Seconds between looks.
        hold_s: Seconds for which a condition must hold.
        calm_s: Seconds for which it must not hold any more; default ``hold_s``, 10 at least.
        options: More arguments of `state_lib.gathering.sensing.Sense`.
        lasts: After that the task succeeds, for a new run to go on: logs and runs end some time.
            Counted from the start of its run.
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
            AirflowException: a wrong setting: the retries go on once somebody has corrected it.
        """
        try:
            with as_airflow():
                _ = HoldfastHook(self.conn_id, self.env).settings
        except AirflowFailException as error:  # no retry would follow, and the others watch on
            raise AirflowException(*error.args) from error
        self._watch(context, self._ends(context), 0 if self._notify(context) is None else 1)

    def resume(self, context: Context, event: dict[str, Any]) -> None:
        """Tell what is new, then defer again.

        Raises:
            AirflowFailException: a notifier still fails at the end: the next run tries it again.
        """
        now, kept = int(time.time() * 1000), event["kept"]
        for condition in event["conditions"]:
            self.log.warning("%s", condition["text"])
        for subject in event["over"]:
            self.log.info("%s of %s is over: %s", self.condition, self.app, subject)
        for one in self._notifiers:
            incidents = one.incidents(context)
            incidents.begin([c for c in event["conditions"] if c["name"] == one.condition], now)
            incidents.end(event["over"], now)  # of those that it knows
        failed = self._notify(context)
        if time.time() < kept["ends"]:
            self._watch(context, kept["ends"], 0 if failed is None else kept["failures"] + 1)
        if failed is not None:
            raise AirflowFailException(failed)

    @property
    def _notifiers(self) -> tuple[IncidentNotifier, IncidentNotifier]:
        """Of the condition, and of that nobody can look for it."""
        from state_lib.checks.condition import CANNOT_LOOK

        blind = f"{CANNOT_LOOK}-{self.condition}"
        return (
            IncidentNotifier(self.app, self.condition, self.notifiers),
            IncidentNotifier(self.app, CANNOT_LOOK, self.notifiers, blind),
        )

    def _notify(self, context: Context) -> str | None:
        """Tell what is new; who could not be told, in words."""
        failed = []
        for one in self._notifiers:
            try:
                one(context)
            except AirflowException as error:
                failed.append(str(error))
        return "; ".join(failed) or None

    def _ends(self, context: Context) -> float:
        """With its run, also if this is a later try: the other conditions wait for the next one."""
        now, lasts = time.time(), self.lasts.total_seconds()
        run: Any = context["dag_run"]
        began = run.start_date.timestamp() if run.start_date is not None else now
        return max(float(began) + lasts, now + min(lasts, AGAIN_S))

    def _watch(self, context: Context, ends: float, failures: int) -> NoReturn:
        """Defer until something is new, or notifiers that have failed so often are tried again."""
        # Longer and longer, so that what must hold for long, by looks of one trigger, still alarms.
        again = AGAIN_S * 2 ** min(failures - 1, 7)
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
                blind_s=max(self.hold_s, BLIND_S),
                known=[s for one in self._notifiers for s in one.incidents(context).open],
                until=min(ends, time.time() + again) if failures else ends,
                options=self.options,
                kept={"ends": ends, "failures": failures},
            ),
            method_name="resume",
        )
