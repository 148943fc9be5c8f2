"""A session that is the user's: what Holdfast needs of it, and a session of our own beside it."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from state_lib.errors import ConfigurationError
from state_lib.spark.partitioner import partitioner
from state_lib.spark.session import require_of_sql

REUSE, FAILURES = "spark.python.worker.reuse", "spark.task.maxFailures"
_ONE_TRY = re.compile(r"local(\[[^,\]]+\])?")
_ASK_S = 60.0


def beside(given: SparkSession) -> SparkSession:
    """A session of the same JVM with the settings that we rely on; the user's keeps its own.

    Raises:
        ConfigurationError: the session speaks to a remote server, or was stopped; a setting of its
            JVM changes what expressions mean.
    """
    check_is_here(given)
    session = given.newSession()
    require_of_sql(session)
    return session


def check_is_here(session: SparkSession) -> None:
    """Refuse a session whose JVM cannot be reached.

    Raises:
        ConfigurationError: it speaks to a remote server, or was stopped.
    """
    if not hasattr(session, "_jsparkSession"):
        raise ConfigurationError(
            "the session speaks to a remote Spark by Spark Connect, and a driver needs its JVM: "
            "run where Spark's driver runs, with SparkSession.builder.master(...)"
        )
    if not is_alive(session):
        raise ConfigurationError(
            "the session has been stopped: make another by SparkSession.builder.getOrCreate()"
        )


def is_alive(session: SparkSession) -> bool:
    """Whether a session can be used."""
    context = session.sparkContext._jsc  # noqa: SLF001 - None once it is stopped
    try:
        return context is not None and not context.sc().isStopped()
    except (Py4JError, ConnectionError):
        return False


def check_runs(session: SparkSession) -> None:
    """Refuse a session in whose JVM a stream cannot run: what cannot be set any more.

    Raises:
        ConfigurationError: the setting, the value seen, and what to set before the session is made.
    """
    conf = session.sparkContext.getConf()
    if (seen := conf.get(REUSE, "true")) != "true":
        raise _refused(REUSE, seen, "'true'")
    _check_tries(str(session.sparkContext.master), str(conf.get(FAILURES, "4")))
    _check_jars(session)
    _check_python(session)


def _check_tries(master: str, failures: str) -> None:
    if _ONE_TRY.fullmatch(master):
        cores = master.removeprefix("local").strip("[]") or "1"
        raise _refused("spark.master", master, f"'local[{cores},4]': the second number is tries")
    if failures == "1" and not master.startswith("local"):
        raise _refused(FAILURES, failures, "2 or more: one failure of a task would end the stream")


def _check_jars(session: SparkSession) -> None:
    jvm: Any = session._jvm  # noqa: SLF001 - the way to the JVM that pyspark itself takes
    conf = session._jsparkSession.sessionState().conf()  # noqa: SLF001 - as above
    try:
        partitioner(session)
        jvm.org.apache.spark.sql.execution.datasources.DataSource.lookupDataSource("kafka", conf)
    except (Py4JJavaError, PySparkException) as error:
        jars = session.sparkContext.getConf().get("spark.jars", "")
        raise ConfigurationError(
            f"the session has no Kafka source (spark.jars is {jars!r}): make it with the jars that "
            "Holdfast pins, SparkSession.builder.config('spark.jars', ','.join(map(str, "
            "state_lib.stack.jars.fetch('spark')))), or leave the session to Application(...)",
            seen=jars,
        ) from error


def _check_python(session: SparkSession) -> None:
    """Workers of this machine must have Holdfast. Those of a cluster say it in the first batch."""
    python = session.sparkContext.pythonExec
    found = shutil.which(python)
    here = str(session.sparkContext.master).startswith("local")
    if not here or (
        found is not None and Path(found).absolute() == Path(sys.executable).absolute()
    ):
        return
    asked = [found or python, "-c", "import state_lib.executor.exchange"]
    try:
        done = subprocess.run(asked, check=False, capture_output=True, text=True, timeout=_ASK_S)  # noqa: S603
        why = done.stderr.strip().rpartition("\n")[2] if done.returncode else ""
    except (OSError, subprocess.TimeoutExpired) as error:
        why = str(error)
    if why:
        raise ConfigurationError(
            f"Spark's workers would run {python!r}, which has no Holdfast ({why}): set "
            f"PYSPARK_PYTHON={sys.executable} before the session is made",
            seen=python,
        )


def _refused(key: str, seen: str, needed: str) -> ConfigurationError:
    return ConfigurationError(
        f"Spark's setting {key} is {seen!r} and must be {needed}. It cannot be set any more: set "
        "it before the session is made",
        key=key,
        seen=seen,
    )
