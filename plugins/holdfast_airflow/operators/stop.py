"""Stops a stream."""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseOperator
from airflow.sdk.exceptions import AirflowFailException

from holdfast_airflow.errors import as_airflow
from holdfast_airflow.settings import settings_of
from holdfast_airflow.triggers.stream_end import StreamEndTrigger

if TYPE_CHECKING:
    from airflow.sdk import Context


class StopStreamOperator(BaseOperator):
    """Asks an application's driver to stop at a batch's edge, and waits until it has.

    It works wherever the driver runs and whoever supervises it: the request goes through Kafka. A
    task that supervises the driver succeeds, also one that is about to start it again. Where
    nothing runs the request is written too, for nobody, and the task succeeds at once.

    Args:
        app: The application's id.
        why: For the logs of all who watch.
        env: ``HOLDFAST_*`` variables that win over those of the worker.
        wait: How long the driver may take; a batch that runs is finished first. After that the task
            fails; the request stands.
    """

    template_fields: Sequence[str] = ("app", "why", "env")
    ui_color = "#f5dccf"

    def __init__(
        self,
        *,
        app: str,
        why: str = "",
        env: dict[str, str] | None = None,
        wait: timedelta = timedelta(minutes=5),
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.app = app
        self.why = why
        self.env = env or {}
        self.wait = wait

    def execute(self, context: Context) -> None:
        """Ask, then defer.

        Raises:
            AirflowFailException: the application has never run on these brokers.
            AirflowException: Kafka is away; a retry may help.
        """
        from state_lib.drivers.control import ask_to_stop
        from state_lib.kafka import Kafka

        ti: Any = context["ti"]
        why = self.why or f"task {ti.task_id} of DAG {ti.dag_id} ({ti.run_id})"
        with as_airflow():
            ask_to_stop(Kafka.of(settings_of(self.env)), self.app, why=why)
        self.log.info("Asked the driver of %s to stop at a batch's edge", self.app)
        until = time.time() + self.wait.total_seconds()
        self.defer(
            trigger=StreamEndTrigger(app=self.app, env=self.env, until=until),
            method_name="stopped",
        )

    def stopped(self, context: Context, event: dict[str, Any]) -> None:
        """The driver is gone, or was waited for in vain.

        Raises:
            AirflowFailException: it has not stopped within ``wait``; which one, and where.
        """
        del context
        if event["event"] == "timed_out":
            raise AirflowFailException(event["text"])
        self.log.info(event["text"])
