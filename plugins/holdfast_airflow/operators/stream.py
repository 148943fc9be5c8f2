"""Starts a stream's driver and supervises it; stops it."""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, NoReturn

from airflow.sdk import BaseOperator
from airflow.sdk.exceptions import AirflowException, AirflowFailException

from holdfast_airflow.adoption import Found, living
from holdfast_airflow.errors import as_airflow
from holdfast_airflow.handover import ask_for_handover
from holdfast_airflow.hooks.hosts import check_token
from holdfast_airflow.hooks.spark import SparkTarget, describe, job_file, job_path
from holdfast_airflow.links import DriverLogLink, SparkUiLink
from holdfast_airflow.settings import settings_of
from holdfast_airflow.triggers.stream import StreamEndTrigger, SuperviseStreamTrigger
from holdfast_airflow.watched import Watched, app_asset
from state_lib.errors import ConfigurationError, HoldfastError

if TYPE_CHECKING:
    from airflow.sdk import Context

    from state_lib.drivers.process import DriverProcess
    from state_lib.drivers.sight import Sight
    from state_lib.drivers.supervision import Supervision

KILL_S = 3.0
"""How long a driver that was just launched may take to end when its task is killed; Airflow itself
waits for 5 s."""


class SuperviseStreamOperator(BaseOperator):
    """Keeps one driver of an application running until somebody stops it.

    The driver is started by ``spark-submit`` as the Spark connection says, in a session of its own,
    and outlives every process of Airflow. The task then waits in the triggerer. A driver of the
    same job that runs already, whoever started it, is adopted: there is never a second one.

    - The driver cannot be started at first: what a person must correct fails the task at once, for
      the rest the task's retries apply.
    - The driver crashes: it is started again, with growing pauses; given up after more than
      ``max_restarts`` failures in a row without a commit, with the last lines of its log, or at
      once if the driver says that another start cannot help. The task fails.
    - It cannot be started again for now (Spark's master, a cluster or Kafka is away): that is a
      failure like any other, tried again after a pause.
    - Another driver takes the application over: the task fails and says which; no restart.
    - It has said its last words and hangs in its exit: its process is ended after a minute.
    - Somebody stops the stream (`StopStreamOperator`, ``holdfast stop``): the task succeeds.
    - A user marks the task as failed or success: the driver stops at a batch's edge.
    - A user clears the task: the driver stops at a batch's edge, and the next try starts a new one.
    - A worker dies: the next try adopts the driver, or launches it; not if a stop came meanwhile.

    Args:
        app: The application's id. No template: it names an asset.
        application: The job file, a path or a URL that Spark can fetch; relative paths and the
            default, ``<app>.py``, are taken from ``HOLDFAST_JOBS_DIR``.
        conn_id: The Spark connection.
        conf: Spark properties; they win over Holdfast's.
        env: Variables of the driver; ``HOLDFAST_*`` among them win over the worker's.
        max_restarts: Failures in a row without a commit before it gives up.
    """

    template_fields: Sequence[str] = (
        "app",
        "application",
        "conn_id",
        "conf",
        "env",
        "max_restarts",
    )
    operator_extra_links = (DriverLogLink(), SparkUiLink())
    ui_color = "#cfe3f5"

    def __init__(
        self,
        *,
        app: str,
        application: str | None = None,
        conn_id: str = "spark_default",
        conf: dict[str, str] | None = None,
        env: dict[str, str] | None = None,
        max_restarts: int | str = 8,
        **kwargs: Any,
    ) -> None:
        # One supervisor per application, also when a run is cleared beside another one.
        super().__init__(**{"max_active_tis_per_dag": 1, **kwargs})
        self.app = app
        self.application = application
        self.conn_id = conn_id
        self.conf = conf or {}
        self.env = env or {}
        self.max_restarts = max_restarts
        self.inlets = [*self.inlets, app_asset(app)]
        self._launched: DriverProcess | None = None
        self._found_by: Any = None
        self._killed = False

    def execute(self, context: Context) -> dict[str, Any]:
        """Adopt the living driver or start one, then defer.

        Returns only if the stream was asked to stop since an earlier try of this task.

        Raises:
            AirflowFailException: what a person must correct: see its message.
            AirflowException: Kafka is away; a retry may help.
        """
        from state_lib.drivers.supervision import Supervision

        with as_airflow():
            watched = Watched(context, self.app)
            if other := watched.other_supervisor():
                raise AirflowFailException(
                    f"{self.app} is supervised by {other} already. Stop that one first, or leave "
                    "this run"
                )
            found, asked = self._first_look(context, watched)
            if found.process is None and asked:
                return self._stopped(found.sight)
            process = found.process or self._launch(context, found.sight)
            watched.keep(process)
            now, most = time.time(), int(self.max_restarts)
            supervision = Supervision(self.app, process.id, now, max_restarts=most)
            if found.process is None:
                supervision.launched(process.id, now, found.sight)
            supervision.asked.ending = -1 if asked else found.ending
            return self._watch(context, process, supervision)

    def resume(self, context: Context, event: dict[str, Any]) -> dict[str, Any]:
        """Go on after the trigger has seen something that needs a worker.

        Raises:
            AirflowFailException: the driver was superseded, or is given up.
        """
        from state_lib.drivers.supervision import Supervision

        for line in event.get("told", ()):
            self.log.info("%s", line)
        self.log.info("%s: %s", event["event"], event["text"])
        if event["event"] == "restart":
            return self._restart(context, Supervision.from_json(event["supervision"]))
        if event["event"] != "stopped":
            raise AirflowFailException(event["text"])
        return {key: event[key] for key in ("event", "text")}

    def on_kill(self) -> None:
        """End a driver that nobody watches yet: one that was just launched, or is adopted."""
        self._killed = True
        self._let_go()

    # ------------------------------------------------------------------ inside

    def _first_look(self, context: Context, watched: Watched) -> tuple[Found, bool]:
        """What there is, and whether a stop was asked for since an earlier try looked.

        Airflow tells the triggerer of a clear; where that was away, the driver is asked here.
        """
        found, before = self._living(watched), watched.first_look()
        self._found_by = context["ti"] if found.process is not None else None
        known = watched.driver()
        cleared = before is not None and before.cleared
        if cleared and found.process is not None and found.process == known and found.ending < 0:
            ask_for_handover(self.app, self.env, context["ti"])
            found = self._living(watched)
        sight = found.sight
        if sight.away is not None:
            return found, False
        if before is None or cleared:
            watched.keep_first_look(sight.heard)
            return found, False
        return found, sight.stream_stopped_since(before.heard)

    def _stopped(self, sight: Sight) -> dict[str, Any]:
        why = "" if sight.asked is None else sight.asked.why
        text = f"{self.app} was asked to stop: {why}"
        self.log.info("stopped: %s", text)
        return {"event": "stopped", "text": text}

    def _let_go(self) -> None:
        if self._launched is not None:
            self._launched.end(KILL_S)
        elif self._found_by is not None:
            try:
                ask_for_handover(self.app, self.env, self._found_by)
            except HoldfastError as error:
                self.log.error(
                    "The driver of %s was not asked to stop: %s", self.app, error.message
                )
            else:
                self._found_by = None

    def _restart(self, context: Context, supervision: Supervision) -> dict[str, Any]:
        """Start a driver again, unless one lives or a stop came; what fails is tried again."""
        watched = Watched(context, self.app)
        before = watched.driver()
        try:
            found = self._living_or_fail(watched, supervision.id)
            # The triggerer and the next try may both have asked for a handover: that is no stop.
            asked = supervision.asked_since(found.sight)
            if found.process is None and asked:
                return self._stopped(found.sight)
            process = found.process
            self._found_by = context["ti"] if process is not None else None
            if process is None:
                process = self._launch(context, found.sight, supervision.restarts + 1)
                supervision.restarts += 1
            watched.keep(process)
        except HoldfastError as error:
            if before is None:
                raise AirflowFailException(error.message) from error
            event = supervision.not_launched(error.message, time.time())
            if event.name == "gave_up":
                raise AirflowFailException(event.text) from error
            self.log.warning("%s", event.text)
            self._watch(context, before, supervision)
        ending = -1 if asked else found.ending
        supervision.launched(process.id, time.time(), found.sight, ending=ending)
        return self._watch(context, process, supervision)

    def _living_or_fail(self, watched: Watched, gone: str) -> Found:
        """As `_living`; a driver of another job is for a person to stop, as at the first launch."""
        try:
            return self._living(watched, gone=gone)
        except ConfigurationError as error:
            raise AirflowFailException(error.message) from error

    def _living(self, watched: Watched, gone: str | None = None) -> Found:
        settings, known = settings_of(self.env), watched.driver()
        job = job_path(settings, self.app, self.application)
        submission = None if known is None else watched.submission(known.id)
        return living(
            settings,
            self.app,
            known,
            job,
            self.log,
            gone=gone,
            heeds_from=watched.heeds_from(),
            submission=submission,
        )

    def _launch(self, context: Context, sight: Sight, restarts: int = 0) -> DriverProcess:
        from state_lib.drivers.identity import HEEDS_VARIABLE, RESTARTS_VARIABLE
        from state_lib.drivers.process import launch
        from state_lib.stack.paths import Paths

        if self._killed:
            raise AirflowException("the task was killed before its driver was launched")
        settings = settings_of(self.env)
        env = {
            **self.env,
            HEEDS_VARIABLE: str(sight.heard),
            RESTARTS_VARIABLE: str(restarts),
        }
        target = SparkTarget(self.conn_id, self.app, settings, self.conf, env)
        target.check()
        check_token(settings)
        job = job_file(settings, self.app, self.application)
        if target.in_cluster:
            return self._submit(context, target, job, sight.heard)
        command = target.command(job)
        log = Paths(settings.home).log(self.app)
        self._launched = launch(self.app, command, env=target.environment(), log=log)
        try:
            Watched(context, self.app).keep(self._launched, sight.heard)
        except BaseException:
            self._launched.end(KILL_S)  # nobody would know of it
            raise
        self.log.info(
            "Launched driver %s: process %d on %s, %s; its log is %s",
            self._launched.id,
            self._launched.pid,
            self._launched.host,
            ", ".join(f"{name} {value}" for name, value in describe(command).items()),
            log,
        )
        return self._launched

    def _submit(
        self, context: Context, target: SparkTarget, job: str, heeds_from: int
    ) -> DriverProcess:
        from holdfast_airflow.hooks.cluster import submit  # noqa: PLC0415 - for clusters only

        process, submission = submit(target, job)
        self.log.info(
            "Submitted driver %s: %s has it as %s", process.id, target.master, submission.id
        )
        self._found_by = context["ti"]
        watched = Watched(context, self.app)
        watched.keep(process, heeds_from)
        watched.keep_submission(process.id, submission.to_json())
        return process

    def _watch(
        self, context: Context, process: DriverProcess, supervision: Supervision
    ) -> NoReturn:
        if self._killed:
            self._let_go()
            raise AirflowException("the task was killed before its driver was watched")
        self.defer(
            trigger=SuperviseStreamTrigger(
                app=self.app,
                process=process.to_json(),
                supervision=supervision.to_json(),
                env=self.env,
                submission=Watched(context, self.app).submission(process.id),
            ),
            method_name="resume",
        )


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
