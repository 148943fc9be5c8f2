"""What operators share that launch a job and wait for its report."""

from __future__ import annotations

import socket
import time
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn

from airflow.sdk import BaseOperator
from airflow.sdk.exceptions import AirflowException, AirflowFailException, AirflowSkipException

from holdfast_airflow.adoption import KILL_S
from holdfast_airflow.errors import as_airflow
from holdfast_airflow.hooks.holdfast import HoldfastHook
from holdfast_airflow.jobs import Job, JobMemory, Seen, lives
from holdfast_airflow.triggers.job import JobTrigger
from holdfast_airflow.watched import app_asset
from state_lib.errors import Unavailable

if TYPE_CHECKING:
    from airflow.sdk import Context

    from state_lib.config import Settings
    from state_lib.drivers.process import DriverProcess
    from state_lib.reports.folder import Kind
    from state_lib.reports.record import Record


ENDS_S = 20.0
"""How long a job that is not wanted may take to end: on another machine it looks every 5 s."""


class ReportJobOperator(BaseOperator):
    """Launches a job, detached, and defers until it has left its report.

    The job outlives every process of Airflow. A worker or triggerer that was lost is followed by
    one that adopts it, or takes its result; there is never a second one of an application, unless
    such jobs only read, each for its task (``apart``).

    - A user clears or marks the task: the job is ended, within seconds also on another machine.
    - It dies, or is silent on another machine: the task's retries apply.
    - It takes longer than ``patience``: it is ended, and the task's retries apply.

    Args:
        app: The application's id. No template: it names an asset.
        conn_id: The Holdfast connection; without a default one the worker's own settings count.
        skip_unknown: Skip the task while the application has not run, or not since it was reset.
        patience: How long the job may take.
        env: ``HOLDFAST_*`` variables that win over the connection.
    """

    kind: ClassVar[Kind]
    apart: ClassVar[bool] = False
    """Whether several tasks may have such a job of an application at once."""
    template_fields: Sequence[str] = ("app", "conn_id", "env")

    def __init__(
        self,
        *,
        app: str,
        conn_id: str = HoldfastHook.default_conn_name,
        skip_unknown: bool = False,
        patience: timedelta = timedelta(hours=6),
        env: dict[str, str] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**{"max_active_tis_per_dag": 1, **kwargs})
        self.app = app
        self.conn_id = conn_id
        self.skip_unknown = skip_unknown
        self.patience = patience
        self.env = env or {}
        self.inlets = [*self.inlets, app_asset(app)]
        self._launched: DriverProcess | None = None
        self._killed = False

    def execute(self, context: Context) -> Any:
        """Adopt the job that runs, or launch one; then defer.

        Returns only if an earlier try of this task has launched one and it is done.

        Raises:
            AirflowSkipException: no such application, where that is to be skipped.
            AirflowFailException: what a person must correct: see its message.
            AirflowException: Kafka or storage is away; a retry may help.
        """
        hook = HoldfastHook(self.conn_id, self.env)
        with as_airflow(skip_unknown=self.skip_unknown):
            hook.declared(self.app)
        with as_airflow():
            memory = self._memory(context)
            last = memory.last()
            seen = None if last is None else last.look()
            record = None if seen is None else seen.record
            if record is not None and record.state == "done" and memory.is_mine():
                return self._reported(context, record, hook.settings)
            if last is not None and seen is not None and memory.was_cleared():
                self._end(last, seen)
                last = self._launch(memory, hook.settings)
            elif last is not None and seen is not None and lives(last, seen):
                self.log.info("Adopting the %s of %s: %s", self.kind, self.app, last.place)
                memory.keep(last)
            else:
                last = self._launch(memory, hook.settings)
        return self._follow(last)

    def resume(self, context: Context, event: dict[str, Any]) -> Any:
        """Read the report.

        Raises:
            AirflowFailException: it is bad news: see `judge`.
            AirflowException: there is none.
        """
        for line in event["told"]:
            self.log.info("%s", line)
        self.log.info("%s: %s", event["event"], event["text"])
        if event["event"] != "ended":
            raise AirflowException(event["text"])
        with as_airflow():
            hook = HoldfastHook(self.conn_id, self.env)
            record = Job.from_json(event["job"]).look().record
            if record is None or not record.ended:
                raise AirflowException(
                    f"this worker does not see the report that the triggerer saw in "
                    f"{event['job']['url']}: all must see the same HOLDFAST_REPORTS_URL"
                )
            return self._reported(context, record, hook.settings)

    def on_kill(self) -> None:
        """End a job that was just launched: no trigger watches it yet."""
        self._killed = True
        if self._launched is not None:
            self._launched.end(KILL_S)

    # ------------------------------------------------------------------ of each operator

    def command(self, settings: Settings, job: str) -> tuple[list[str], dict[str, str]]:
        """Command line and environment of the job of this id. Raises HoldfastError."""
        raise NotImplementedError

    def judge(self, result: Mapping[str, Any]) -> Any:
        """The report for XCom. Raises what fails the task, or skips it."""
        raise NotImplementedError

    def brief(self, result: Mapping[str, Any]) -> dict[str, Any]:
        """What of the report is kept as XCom, also if the task fails."""
        return dict(result)

    # ------------------------------------------------------------------ inside

    def _memory(self, context: Context) -> JobMemory:
        """What is known of the last job."""
        return JobMemory(context, self.app, self.kind, apart=self.apart)

    def _launch(self, memory: JobMemory, settings: Settings) -> Job:
        from state_lib.drivers.process import DriverProcess, launch
        from state_lib.reports.folder import new_report
        from state_lib.stack.paths import Paths

        if self._killed:
            raise AirflowException("the task was killed before its job was launched")
        mark, name = new_report(), f"{self.kind}-{self.app}"
        command, env = self.command(settings, mark)
        file = Paths(settings.home).log(name)
        process = DriverProcess(
            mark, name, socket.gethostname(), 0, str(file), int(time.time() * 1000)
        )
        # Before it is launched: who is killed in between finds it by its mark.
        self._launched = process
        memory.keep(self._job(settings, process))
        self._launched = launch(name, command, env=env, log=file, mark=mark)
        memory.keep(job := self._job(settings, self._launched))
        self.log.info(
            "Launched the %s of %s: %s; its log is %s", self.kind, self.app, job.place, file
        )
        return job

    def _end(self, job: Job, seen: Seen) -> None:
        """What an earlier try has launched is not wanted. Raises Unavailable: it has not ended."""
        deadline = time.monotonic() + ENDS_S
        while lives(job, seen, again_s=0.0):
            if time.monotonic() > deadline:
                raise Unavailable(
                    f"the {self.kind} of {self.app} ({job.place}) was asked to end, since this "
                    "task was cleared, and has not: look at that machine",
                    app=self.app,
                )
            self.log.info("Ending the %s of %s: %s", self.kind, self.app, job.place)
            job.end(KILL_S)
            time.sleep(1)
            seen = job.look()

    def _job(self, settings: Settings, process: DriverProcess) -> Job:
        return Job(self.kind, self.app, settings.reports_url, process.to_json())

    def _follow(self, job: Job) -> NoReturn:
        if self._killed:
            self.on_kill()
            raise AirflowException("the task was killed before its job was watched")
        self.defer(
            trigger=JobTrigger(job.to_json(), time.time() + self.patience.total_seconds()),
            method_name="resume",
        )

    def _reported(self, context: Context, record: Record, settings: Settings) -> Any:
        from state_lib.reports.folder import Reports

        reports = Reports.of(settings, self.app, self.kind)
        result = record.outcome()
        ti: Any = context["ti"]
        url = reports.url(f"{record.id}.json")
        ti.xcom_push("report", self.brief(result) | {"url": url})
        self.log.info("The report is %s", url)
        reports.prune(settings.reports_kept)
        try:
            return self.judge(result)
        except (AirflowFailException, AirflowSkipException):
            raise
        except AirflowException:  # what a retry may mend, it has to look at anew
            self._memory(context).disown()
            raise
