"""What all sensors have in common."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn

from airflow.sdk import BaseOperator, BaseSensorOperator
from airflow.sdk.exceptions import (
    AirflowFailException,
    AirflowSensorTimeout,
    AirflowSkipException,
    TaskDeferralTimeout,
)

from holdfast_airflow.errors import as_airflow
from holdfast_airflow.hooks.holdfast import HoldfastHook, existing
from holdfast_airflow.triggers.condition import ConditionTrigger

if TYPE_CHECKING:
    from airflow.sdk import Context

    from state_lib.checks.condition import Condition, Name


class ConditionSensor(BaseSensorOperator):
    """Succeeds once a condition of an application holds; until then it waits in the triggerer.

    Brokers, hosts and storage that are away are waited for. What a person must correct, a wrong
    setting or a refused token, fails the task at once. After ``timeout`` it fails, or is skipped
    with ``soft_fail``, as Airflow's own sensors; those would skip errors as well.

    Args:
        app: The application's id.
        conn_id: The Holdfast connection; where there is none, the worker's own settings count.
        hold_s: Seconds for which the condition must hold, so that one missed answer is no alarm.
        env: ``HOLDFAST_*`` variables that win over the connection.

    Returns (as XCom): the condition, as `state_lib.checks.condition.Condition.to_json`.
    """

    condition: ClassVar[Name]
    every_s: ClassVar[float] = 60.0
    """Seconds between looks, unless ``poke_interval`` says otherwise."""
    holds_s: ClassVar[float] = 60.0
    """``hold_s`` where nothing is said."""
    template_fields: Sequence[str] = ("app", "conn_id", "env")
    ui_color = "#f5e6d5"

    def __init__(
        self,
        *,
        app: str,
        conn_id: str = HoldfastHook.default_conn_name,
        hold_s: float | None = None,
        env: dict[str, str] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**{"poke_interval": self.every_s, **kwargs})
        self.app = app
        self.conn_id = conn_id
        self.hold_s = self.holds_s if hold_s is None else hold_s
        self.env = env or {}

    @property
    def options(self) -> dict[str, Any]:
        """More arguments of `state_lib.gathering.sensing.Sense`."""
        return {}

    def execute(self, context: Context) -> NoReturn:
        """Defer.

        Raises:
            AirflowFailException: a wrong setting.
        """
        del context
        with as_airflow():
            _ = HoldfastHook(self.conn_id, self.env).settings  # before a trigger waits
        self.defer(
            trigger=ConditionTrigger(
                self.app,
                self.condition,
                self.conn_id,
                self.env,
                found=bool(existing(self.conn_id)),
                poke_interval=self.poke_interval,
                hold_s=self.hold_s,
                options=self.options,
            ),
            method_name="resume",
            timeout=timedelta(seconds=self.timeout),
        )

    def resume_execution(
        self, next_method: str, next_kwargs: dict[str, Any] | None, context: Context
    ) -> Any:
        """Go on after the trigger. ``soft_fail`` is about time: Airflow's own hides errors by it.

        Raises:
            AirflowSkipException, AirflowSensorTimeout: the time is over.
            TaskDeferralError: the trigger failed; a retry may help.
        """
        if self.never_fail:
            return super().resume_execution(next_method, next_kwargs, context)
        try:
            return BaseOperator.resume_execution(self, next_method, next_kwargs, context)
        except TaskDeferralTimeout as error:
            kind = AirflowSkipException if self.soft_fail else AirflowSensorTimeout
            why = f"{self.condition} of {self.app} did not hold within {self.timeout:.0f} s"
            raise kind(why) from error

    def resume(self, context: Context, event: dict[str, Any]) -> Any:
        """The condition holds.

        Raises:
            AirflowFailException: what a person must correct.
        """
        del context
        from state_lib.checks.condition import Condition, together

        if "error" in event:
            raise AirflowFailException(event["error"])
        found = together([Condition.from_json(c) for c in event["conditions"]])
        self.log.warning("%s", found.text)
        return self.result(found)

    def result(self, found: Condition) -> Any:
        """What the task returns."""
        return found.to_json()
