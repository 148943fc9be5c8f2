"""Starts a driver for a task, and lets go of it if the task is killed before a trigger watches."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from airflow.sdk.exceptions import AirflowException

from holdfast_airflow.adoption import KILL_S
from holdfast_airflow.handover import ask_for_handover
from holdfast_airflow.hooks.hosts import check_token
from holdfast_airflow.hooks.spark import SparkTarget, describe, job_file, job_path
from holdfast_airflow.settings import settings_of
from state_lib.errors import HoldfastError

if TYPE_CHECKING:
    from airflow.sdk.types import Logger

    from holdfast_airflow.watched import Watched
    from state_lib.config import Settings
    from state_lib.drivers.process import DriverProcess
    from state_lib.drivers.sight import Sight


@dataclass(frozen=True)
class Wanted:
    """A driver as a task asks for it: see `SuperviseStreamOperator`."""

    app: str
    application: str | None
    conn_id: str
    conf: dict[str, str]
    env: dict[str, str]

    @property
    def settings(self) -> Settings:
        """Of the worker, with the task's on top.

        Raises:
            ConfigurationError: see `settings_of`.
        """
        return settings_of(self.env)

    @property
    def job(self) -> str:
        """The file that it runs: a full path, or a URL."""
        return job_path(self.settings, self.app, self.application)

    def target(self, sight: Sight, restarts: int) -> SparkTarget:
        """Where it is to run; it heeds what is said after ``sight``."""
        from state_lib.drivers.identity import HEEDS_VARIABLE, RESTARTS_VARIABLE

        env = {**self.env, HEEDS_VARIABLE: str(sight.heard), RESTARTS_VARIABLE: str(restarts)}
        return SparkTarget(self.conn_id, self.app, self.settings, self.conf, env)


class Launcher:
    """The driver of a task that no trigger watches yet.

    Attributes:
        killed: whether the task was killed: nothing is launched or watched any more.
        found_by: the task's instance where the driver is no child of ours: one that it has adopted,
            or submitted to a cluster.
    """

    def __init__(self) -> None:
        self.killed = False
        self.found_by: Any = None
        self._launched: DriverProcess | None = None

    def launch(
        self, wanted: Wanted, watched: Watched, sight: Sight, log: Logger, restarts: int = 0
    ) -> DriverProcess:
        """Start a driver, and remember it.

        Args:
            wanted: which one.
            watched: where it is remembered.
            sight: the last look: the driver heeds what is said after it.
            log: of the task.
            restarts: how often the supervisor has started one before it.

        Raises:
            AirflowException: the task was killed.
            TopicRecreated: the application's topology topic was deleted: its driver would be
                refused, and have nothing to say so in.
            HoldfastError: it cannot be started.
        """
        if self.killed:
            raise AirflowException("the task was killed before its driver was launched")
        target = wanted.target(sight, restarts)
        target.check()
        check_token(wanted.settings)
        _check_topology(wanted)
        job = job_file(wanted.settings, wanted.app, wanted.application)
        start = self._submit if target.in_cluster else self._start
        try:
            return start(target, job, watched, sight.heard, log)
        except BaseException:
            self.let_go(wanted, log)  # one that was launched, and nobody would know of it
            raise

    def let_go(self, wanted: Wanted, log: Logger) -> None:
        """End the driver, or ask it to stop where it is no child of ours."""
        if self._launched is not None:
            self._launched.end(KILL_S)
        elif self.found_by is not None:
            try:
                ask_for_handover(wanted.app, wanted.env, self.found_by)
            except HoldfastError as error:
                log.error("The driver of %s was not asked to stop: %s", wanted.app, error.message)
            else:
                self.found_by = None

    def _start(
        self, target: SparkTarget, job: str, watched: Watched, heeds_from: int, log: Logger
    ) -> DriverProcess:
        from state_lib.drivers.process import launch
        from state_lib.stack.paths import Paths

        command = target.command(job)
        file = Paths(target.settings.home).log(target.app)
        self._launched = made = launch(target.app, command, env=target.environment(), log=file)
        watched.keep(made, heeds_from)
        words = ", ".join(f"{name} {value}" for name, value in describe(command).items())
        where = f"process {made.pid} on {made.host}"
        log.info("Launched driver %s: %s, %s; its log is %s", made.id, where, words, file)
        return made

    def _submit(
        self, target: SparkTarget, job: str, watched: Watched, heeds_from: int, log: Logger
    ) -> DriverProcess:
        from holdfast_airflow.hooks.cluster import submit  # noqa: PLC0415 - for clusters only

        process, submission = submit(target, job)
        log.info("Submitted driver %s: %s has it as %s", process.id, target.master, submission.id)
        self.found_by = watched.ti
        watched.keep(process, heeds_from)
        watched.keep_submission(process.id, submission.to_json())
        return process


def _check_topology(wanted: Wanted) -> None:
    from state_lib.kafka import Kafka
    from state_lib.task.claiming import claim_or_none  # noqa: PLC0415 - Kafka's client

    claim_or_none(Kafka.of(wanted.settings), wanted.app)
