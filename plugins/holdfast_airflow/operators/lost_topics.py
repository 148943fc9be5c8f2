"""Finds what Kafka lost of an application's topics, and has it written anew."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import orjson
from airflow.sdk import BaseOperator
from airflow.sdk.bases.skipmixin import SkipMixin
from airflow.sdk.exceptions import AirflowException, AirflowFailException

from holdfast_airflow.errors import FINAL, as_airflow
from holdfast_airflow.hooks.holdfast import HoldfastHook
from holdfast_airflow.operators.work import StateWorkOperator
from state_lib.errors import from_wire

if TYPE_CHECKING:
    from airflow.sdk import Context

    from state_lib.reports.folder import Kind


class FindLostTopicsOperator(BaseOperator, SkipMixin):
    """Asks every host what the topics of its tasks lost, and whether its copy can take their place.

    Nothing is changed. Where nothing is lost, the tasks that follow are skipped.

    Args:
        app: The application's id.
        conn_id: The Holdfast connection; without a default one the worker's own settings count.
        skip_unknown: Skip the task while the application has not run, or not since it was reset.
        env: ``HOLDFAST_*`` variables that win over the connection.

    Returns (as XCom): ``app``, and ``losses`` that can be repaired, each with ``task``, ``host``,
    the lost ``topics`` and what was seen of each, and the commit that its ``copy`` stands at.
    """

    template_fields: Sequence[str] = ("app", "conn_id", "env")
    ui_color = "#f5e6c8"
    inherits_from_skipmixin = True

    def __init__(
        self,
        *,
        app: str,
        conn_id: str = HoldfastHook.default_conn_name,
        skip_unknown: bool = False,
        env: dict[str, str] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.app = app
        self.conn_id = conn_id
        self.skip_unknown = skip_unknown
        self.env = env or {}

    def execute(self, context: Context) -> dict[str, Any]:
        """Ask all hosts.

        Raises:
            AirflowFailException: no such application, or all that is lost is in no copy.
            AirflowSkipException: no such application, where that is to be skipped.
            AirflowException: a host or Kafka is away, or a task is opening; a retry may help.
        """
        from state_lib.apps.losses import find_losses

        hook = HoldfastHook(self.conn_id, self.env)
        with as_airflow(skip_unknown=self.skip_unknown):
            hook.declared(self.app)
        with as_airflow():
            found, failures = find_losses(hook.settings, self.app)
            for task, error in failures.items():
                raise type(error)(f"{task} does not tell what it lost: {error.message}")
        lost = [loss for loss in found if loss.topics]
        for loss in lost:
            for topic, seen in loss.topics.items():
                self.log.warning("%s on %s: %s: %s", loss.task, loss.host, topic, seen)
            if loss.why_not is not None:
                self.log.error("%s cannot be repaired: %s", loss.task, loss.why_not)
        work = [loss for loss in lost if loss.why_not is None]
        if lost and not work:
            raise AirflowFailException(
                f"what {lost[0].task} lost is in no copy: {lost[0].why_not} ({len(lost)} of "
                f"{len(found)} tasks). If a host that is not in HOLDFAST_HOSTS has a newer copy, "
                f"put it back; or begin anew: 'holdfast app reset {self.app}'"
            )
        plain = orjson.loads(orjson.dumps([loss.to_json() for loss in work]))
        plan = {"app": self.app, "losses": plain}
        if work:
            return plan
        self.log.info("Nothing is lost: the topics of %s tasks are whole", len(found))
        ti: Any = context["ti"]
        ti.xcom_push("return_value", plan)  # Airflow keeps none of a task that skips others
        self.skip(ti, context["task"].get_direct_relatives(upstream=False))
        return plan


class RepairLostTopicsOperator(StateWorkOperator):
    """Has hosts write lost changelogs and markers anew from their copies, read back and compared.

    See `ReportJobOperator` for what happens around it. A task of which nothing is lost any more is
    left alone, so it may be killed and run again.

    Args:
        losses: The output of a `FindLostTopicsOperator`.
        kwargs: As `ReportJobOperator`.

    Returns (as XCom): ``tasks`` that were repaired; with those that ``failed`` also under the key
    ``report`` if the task fails.
    """

    kind: ClassVar[Kind] = "repair"
    template_fields: Sequence[str] = (*StateWorkOperator.template_fields, "losses")
    ui_color = "#f5e6c8"

    def __init__(self, *, losses: Any, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.losses = losses

    def given(self) -> Mapping[str, Any]:
        """The tasks."""
        given = self.losses
        if not isinstance(given, Mapping) or given.get("app") != self.app:
            raise AirflowFailException(
                f"losses are {given!r}, and none of {self.app}: give what a FindLostTopicsOperator "
                "returned"
            )
        return {"tasks": [loss["task"] for loss in given["losses"]]}

    def judge(self, result: Mapping[str, Any]) -> dict[str, Any]:
        """Tell what was repaired.

        Raises:
            AirflowFailException: a copy cannot take the place of what is lost.
            AirflowException: a host or Kafka went away; a retry goes on.
        """
        for task in result["tasks"]:
            self.log.info("%s: its topics are written anew", task)
        errors = {task: from_wire(error) for task, error in result["failed"].items()}
        for task, error in errors.items():
            self.log.error("%s: %s", task, error.message)
        if errors:
            final = all(isinstance(error, FINAL) for error in errors.values())
            task, error = next(iter(errors.items()))
            text = f"{len(errors)} tasks of {self.app} are not repaired, first {task}: "
            raise (AirflowFailException if final else AirflowException)(text + error.message)
        return dict(result)
