"""Starts a stream's driver and supervises it."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NoReturn

from airflow.sdk import BaseOperator
from airflow.sdk.exceptions import AirflowException, AirflowFailException

from holdfast_airflow.adoption import Found, find_driver
from holdfast_airflow.errors import SubmissionUnclear, as_airflow
from holdfast_airflow.handover import ask_for_handover
from holdfast_airflow.launching import Launcher, Wanted
from holdfast_airflow.links import DriverLogLink, SparkUiLink
from holdfast_airflow.triggers.stream import SuperviseStreamTrigger
from holdfast_airflow.watched import Watched, app_asset
from state_lib.errors import ConfigurationError, HoldfastError

if TYPE_CHECKING:
    from airflow.sdk import Context

    from state_lib.drivers.process import DriverProcess
    from state_lib.drivers.sight import Sight, Stop
    from state_lib.drivers.supervision import Supervision


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
        self._launcher = Launcher()

    def execute(self, context: Context) -> dict[str, Any]:
        """Adopt the living driver or start one, then defer.

        Returns only if the stream was asked to stop since an earlier try of this task.

        Raises:
            AirflowFailException: what a person must correct: see its message.
            AirflowException: Kafka is away; a retry may help.
        """
        from state_lib.drivers.supervision import Supervision

        with as_airflow():
            most = self._most_restarts()
            watched = Watched(context, self.app)
            if other := watched.other_supervisor():
                raise AirflowFailException(
                    f"{self.app} is supervised by {other} already. Stop that one first, or leave "
                    "this run"
                )
            found, stop = self._first_look(context, watched)
            if found.process is None and stop is not None:
                return self._stopped(stop)
            process = found.process or self._launch(watched, found.sight)
            watched.keep(process)
            now = time.time()
            supervision = Supervision(self.app, process.id, now, max_restarts=most)
            supervision.launched(process.id, now, found.sight, ending=found.ending, stop=stop)
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
        self._launcher.killed = True
        self._launcher.let_go(self._wanted(), self.log)

    # ------------------------------------------------------------------ inside

    def _first_look(self, context: Context, watched: Watched) -> tuple[Found, Stop | None]:
        """What there is, and the stop that was asked for since an earlier try looked, if one was.

        Of a driver that is found only a stop that it heeds counts: who starts one by hand after a
        stop wants the stream.

        Airflow tells the triggerer of a clear; where that was away, the driver is asked here.
        """
        found, before = self._find(watched), watched.first_look()
        self._launcher.found_by = context["ti"] if found.process is not None else None
        known = watched.driver()
        cleared = before is not None and before.cleared
        if cleared and found.process is not None and found.process == known and found.ending < 0:
            ask_for_handover(self.app, self.env, context["ti"])
            found = self._find(watched)
        sight = found.sight
        if sight.away is not None:
            return found, None
        if before is None or cleared:
            watched.keep_first_look(sight.heard)
            return found, None
        return found, self._meant(found, sight.stream_stopped_since(before.heard))

    def _meant(self, found: Found, stop: Stop | None) -> Stop | None:
        """A stop of the stream, unless it was asked for before the driver that was found."""
        return stop if found.process is None or found.heeds(stop) else None

    def _stopped(self, stop: Stop) -> dict[str, Any]:
        text = stop.told(self.app)
        self.log.info("stopped: %s", text)
        return {"event": "stopped", "text": text}

    def _restart(self, context: Context, supervision: Supervision) -> dict[str, Any]:
        """Start a driver again, unless one lives or a stop came; what fails is tried again."""
        watched = Watched(context, self.app)
        before = watched.driver()
        try:
            found = self._find_or_fail(watched, supervision.id)
            stop = self._meant(found, supervision.stop_asked(found.sight))
            if found.process is None and stop is not None:
                return self._stopped(stop)
            process = found.process
            self._launcher.found_by = context["ti"] if process is not None else None
            if process is None:
                process = self._launch(watched, found.sight, supervision.restarts + 1)
                supervision.restarts += 1
            watched.keep(process)
        except HoldfastError as error:
            if before is None or isinstance(error, SubmissionUnclear):
                raise AirflowFailException(error.message) from error
            event = supervision.not_launched(error.message, time.time())
            if event.name == "gave_up":
                raise AirflowFailException(event.text) from error
            self.log.warning("%s", event.text)
            self._watch(context, before, supervision)
        now = time.time()
        supervision.launched(process.id, now, found.sight, ending=found.ending, stop=stop)
        return self._watch(context, process, supervision)

    def _find_or_fail(self, watched: Watched, gone: str) -> Found:
        """As `_find`; a driver of another job is for a person to stop, as at the first launch."""
        try:
            return self._find(watched, gone=gone)
        except ConfigurationError as error:
            raise AirflowFailException(error.message) from error

    def _find(self, watched: Watched, gone: str | None = None) -> Found:
        wanted, known = self._wanted(), watched.driver()
        submission = None if known is None else watched.submission(known.id)
        return find_driver(
            wanted.settings,
            self.app,
            known,
            wanted.job,
            self.log,
            gone=gone,
            heeds_from=watched.heeds_from(),
            submission=submission,
        )

    def _most_restarts(self) -> int:
        """The number that a template or a person gave."""
        try:
            most = int(self.max_restarts)
        except (TypeError, ValueError):
            most = -1
        if most < 0:
            raise ConfigurationError(
                f"max_restarts of the task that supervises {self.app!r} is {self.max_restarts!r}: "
                "give a whole number, 0 or more",
                app=self.app,
                max_restarts=str(self.max_restarts),
            )
        return most

    def _launch(self, watched: Watched, sight: Sight, restarts: int = 0) -> DriverProcess:
        return self._launcher.launch(self._wanted(), watched, sight, self.log, restarts)

    def _wanted(self) -> Wanted:
        return Wanted(self.app, self.application, self.conn_id, self.conf, self.env)

    def _watch(
        self, context: Context, process: DriverProcess, supervision: Supervision
    ) -> NoReturn:
        if self._launcher.killed:
            self._launcher.let_go(self._wanted(), self.log)
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
