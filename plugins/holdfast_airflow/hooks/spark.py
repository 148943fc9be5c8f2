"""From a Spark connection to the command that starts a driver, by Airflow's own Spark provider."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from holdfast_airflow.settings import environment_of
from state_lib.errors import ConfigurationError

if TYPE_CHECKING:
    from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook

    from state_lib.config import Settings

ANSWER_TIMEOUT_S = 5.0
LOOPBACKS = ("127.0.0.1", "localhost", "::1")
ONLY_HERE = ("spark.driver.host", "spark.driver.bindAddress")


@dataclass(frozen=True)
class SparkTarget:
    """Where a driver is to run, and how it is started there.

    Attributes:
        conn_id: The Spark connection: its master, deploy mode, queue, keytab.
        app: The application's id; Spark's pages show it.
        settings: Holdfast's settings, which the driver gets as variables.
        conf: Spark properties that win over Holdfast's.
        env: Variables that win over the worker's.
        arguments: Of the job.
    """

    conn_id: str
    app: str
    settings: Settings
    conf: Mapping[str, str] = field(default_factory=dict)
    env: Mapping[str, str] = field(default_factory=dict)
    arguments: tuple[str, ...] = ()

    @property
    def master(self) -> str:
        """The connection's master, such as ``local[2,4]`` or ``spark://host:7077``."""
        return str(self.hook._connection["master"])  # noqa: SLF001 - it has no public name

    @property
    def in_cluster(self) -> bool:
        """Whether the driver runs inside the cluster and not on this machine."""
        return bool(self.hook._connection["deploy_mode"] == "cluster")  # noqa: SLF001 - as above

    @cached_property
    def hook(self) -> SparkSubmitHook:
        """The provider's hook, bound to the connection.

        Raises:
            ConfigurationError: there is no such connection, no Kubernetes provider for it, or the
                provider refuses a value in it.
        """
        from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook
        from airflow.sdk import BaseHook  # noqa: PLC0415
        from airflow.sdk.exceptions import AirflowNotFoundException  # noqa: PLC0415

        try:
            # The hook itself would go on with YARN.
            BaseHook.get_connection(self.conn_id)
        except AirflowNotFoundException as error:
            raise ConfigurationError(
                f"there is no connection {self.conn_id!r}: create it under Admin, Connections "
                "(type Spark, host local[2,4] or spark://host:7077), or correct conn_id",
                conn_id=self.conn_id,
            ) from error
        try:
            return SparkSubmitHook(
                conn_id=self.conn_id,
                name=f"holdfast-{self.app}",
                conf=dict(self.conf),
                application_args=list(self.arguments),
            )
        except NameError as error:  # the hook's own check of a package that is not installed
            raise ConfigurationError(
                f"connection {self.conn_id!r} names a Kubernetes master: install "
                "apache-airflow-providers-cncf-kubernetes on the workers and the triggerer",
                conn_id=self.conn_id,
            ) from error
        except ValueError as error:
            raise refused(self.conn_id, error) from error

    def properties(self) -> dict[str, str]:
        """Spark properties: Holdfast's own, and those of the operator on top.

        A class path of the operator's stands behind ours, which the job cannot do without.
        """
        from state_lib.submit import CLASS_PATH, submit_conf  # noqa: PLC0415 - for launches only

        ours = submit_conf(self.settings, self.master)
        if not self.here:
            dropped = set(ONLY_HERE) - self.settings.spark_properties.keys()
            ours = {name: value for name, value in ours.items() if name not in dropped}
        path = [one[CLASS_PATH] for one in (ours, self.conf) if one.get(CLASS_PATH)]
        return {**ours, **self.conf, **({CLASS_PATH: os.pathsep.join(path)} if path else {})}

    def command(self, application: str) -> list[str]:
        """The command line of ``spark-submit``."""
        self.hook._conf = self.properties()  # noqa: SLF001 - what the constructor was given
        return [str(x) for x in self.hook._build_spark_submit_command(application)]  # noqa: SLF001

    def environment(self) -> dict[str, str]:
        """All variables of the driver: the worker's without Airflow's, and Holdfast's settings."""
        from state_lib.stack.java import java_home
        from state_lib.submit import python_of_executors  # noqa: PLC0415

        inherited = environment_of(self.settings)
        beside = str(Path(sys.executable).parent)
        ours = {
            "PATH": os.pathsep.join((beside, inherited.get("PATH", os.defpath))),
            "JAVA_HOME": str(java_home()),
            "PYSPARK_DRIVER_PYTHON": sys.executable,
        }
        if self.here or self.settings.executor_archive:
            ours["PYSPARK_PYTHON"] = python_of_executors(self.settings, self.master)
        if self.here:
            ours["SPARK_LOCAL_IP"] = LOOPBACKS[0]
        return {**inherited, **ours, **self.env}

    @property
    def here(self) -> bool:
        """Whether the executors run on this machine: loopback addresses will do."""
        named = {host for host, _ in self.addresses()}
        return self.master.startswith("local") or bool(named and named <= set(LOOPBACKS))

    def addresses(self) -> list[tuple[str, int]]:
        """Host and port of each master that the connection names; none for local and YARN.

        Raises:
            ConfigurationError: that is no address.
        """
        kind, found, rest = self.master.partition("://")
        if kind not in ("spark", "k8s") or not found:
            return []
        default = 7077 if kind == "spark" else 443
        urls = [one if "://" in one else f"//{one}" for one in rest.split(",")]
        try:
            parts = [urlsplit(url) for url in urls]
            return [(part.hostname or "", part.port or default) for part in parts]
        except ValueError as error:
            raise ConfigurationError(
                f"connection {self.conn_id!r} names the master {self.master}, which is no address "
                f"({error}). Write host {kind}://{rest.partition(':')[0]} and port {default}, or "
                "all of it as the host and no port",
                conn_id=self.conn_id,
                master=self.master,
            ) from error

    def check(self) -> None:
        """Ask the master whether it is there: ``spark-submit`` finds out after a minute only.

        Raises:
            ConfigurationError: no master of the connection accepts connections, or its kind cannot
                run a Python driver.
        """
        from state_lib.stack.probes import listening

        if self.in_cluster and self.master.startswith("spark://"):
            raise ConfigurationError(
                f"connection {self.conn_id!r} asks for deploy mode 'cluster' on {self.master}: "
                "standalone Spark runs Python drivers in client mode only. Change the mode",
                conn_id=self.conn_id,
                master=self.master,
            )
        addresses = self.addresses()
        if addresses and not any(listening(h, p, ANSWER_TIMEOUT_S) for h, p in addresses):
            names = ", ".join(f"{host}:{port}" for host, port in addresses)
            raise ConfigurationError(
                f"no Spark master answers at {names}, which connection {self.conn_id!r} names. "
                "Start it, or correct the connection",
                conn_id=self.conn_id,
                master=self.master,
            )


def refused(conn_id: str, error: ValueError) -> ConfigurationError:
    """The error for a connection that has a value which Airflow's Spark provider does not take."""
    return ConfigurationError(
        f"connection {conn_id!r} is refused by Airflow's Spark provider: {error}. Correct its "
        "extra fields under Admin, Connections, or name another connection in conn_id",
        conn_id=conn_id,
        refused=str(error),
    )


def job_path(settings: Settings, app: str, application: str | None) -> str:
    """``application``, or ``<app>.py``, taken from the jobs directory: a full path, or a URL."""
    given = application or f"{app}.py"
    return given if "://" in given else str(settings.jobs_dir.absolute() / given)


def job_file(settings: Settings, app: str, application: str | None) -> str:
    """The file to submit: see `job_path`.

    Raises:
        ConfigurationError: it is a local path and there is no such file.
    """
    given = job_path(settings, app, application)
    path = Path(given)
    if "://" in given or path.is_file():
        return given
    there = sorted(one.name for one in path.parent.glob("*.py")) if path.parent.is_dir() else []
    raise ConfigurationError(
        f"the job file {path} does not exist (there are: {', '.join(there) or 'none'}). Correct "
        "`application`, or set HOLDFAST_JOBS_DIR on the workers",
        path=str(path),
    )


def describe(command: list[str]) -> dict[str, Any]:
    """What of a command is worth a line of log: the program, its master and the job."""
    return {
        "program": command[0],
        "master": command[command.index("--master") + 1],
        "job": command[-1],
    }
