"""What Spark must know before its JVM starts; ``spark-submit`` takes it as ``--conf``.

Apart from `state_lib.spark`, so that who only launches a driver (Airflow's worker) need not
import PySpark.
"""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from state_lib.errors import ConfigurationError
from state_lib.settings.properties import FILE_ENDING, SECRETS, is_file, resolved
from state_lib.spark.properties import LEGACY, REQUIRED
from state_lib.stack import class_archive
from state_lib.stack.jars import fetch
from state_lib.stack.java import java_home

if TYPE_CHECKING:
    from state_lib.config import Settings

LOOPBACK = "127.0.0.1"
CLASS_PATH = "spark.driver.extraClassPath"
DAEMON = "state_lib.executor.worker_daemon"
_CHECKPOINTING = "org.apache.spark.sql.execution.streaming.checkpointing"
_SCRATCH = {
    # Checkpoints protect nothing (docs/adr/0004), but for each of their files, two in every batch,
    # Hadoop would start ten processes: for links and modes, and as many for a checksum.
    "spark.sql.streaming.checkpointFileManagerClass": (
        f"{_CHECKPOINTING}.FileSystemBasedCheckpointFileManager"
    ),
    "spark.sql.streaming.checkpoint.fileChecksum.enabled": "false",
}
# Before a user's own options, which take precedence. The first: a JVM that does not know the others
# starts as well. The second: no full collections while classes are loaded. The others: a cold JVM
# spends most of its time compiling methods that ran 5,000 times; methods that run for each record
# soon reach three times that, and loops are compiled as early as before.
JVM_START = (
    "-XX:+IgnoreUnrecognizedVMOptions",
    "-XX:MetaspaceSize=256m",
    "-XX:Tier4InvocationThreshold=15000",
    "-XX:Tier4MinInvocationThreshold=1800",
    "-XX:Tier4CompileThreshold=45000",
)
_UNPACKED = "holdfast_packages"
# What Spark must not show in its UI, event logs and plans: by names, and within texts.
REDACTED = {
    "spark.redaction.regex": f"(?i){SECRETS}",
    "spark.redaction.string.regex": r"(?i)password\s*=\s*\S.*",
    "spark.sql.redaction.options.regex": f"(?i){SECRETS}|url",
}


_LISTS = {"spark.jars": ",", "spark.archives": ",", CLASS_PATH: os.pathsep}
"""Properties of which ours are needed as well as a user's, and what stands between."""


def submit_conf(settings: Settings, master: str | None = None) -> dict[str, str]:
    """Properties of a driver whose executors run on this machine; those of the settings win.

    Without secrets, which would stand on a command line: see `secret_conf`. Executors elsewhere
    must reach the driver: remove ``spark.driver.host`` and ``spark.driver.bindAddress``, or set
    them to an address of this machine.

    Args:
        settings: of the driver.
        master: where it will run; that of the settings when None.

    Raises:
        ConfigurationError: there is no such executor archive, or no fitting Java; a property of the
            settings is not free.
    """
    given = _given(settings)
    archive = shipped(settings, master)
    ships = (
        {
            # Unpacked into each executor's working directory.
            "spark.archives": f"{archive}#{_UNPACKED}",
            "spark.executorEnv.PYTHONPATH": f"./{_UNPACKED}",
            "spark.pyspark.python": settings.executor_python,
            "spark.pyspark.driver.python": sys.executable,
        }
        if archive
        else {}
    )
    ours = {
        "spark.driver.memory": settings.driver_memory,
        "spark.driver.host": LOOPBACK,
        "spark.driver.bindAddress": LOOPBACK,
        "spark.ui.port": str(settings.spark_ui_port),
        "spark.ui.showConsoleProgress": "false",
        **_jvm(settings, master),
        **ships,
        **REDACTED,
        "spark.redaction.regex": _redacted(settings),
    }
    both = {
        name: f"{ours[name]}{between}{given[name]}"
        for name, between in _LISTS.items()
        if name in ours and name in given
    }
    return {**ours, **given, **both}


def _redacted(settings: Settings) -> str:
    """Names whose values Spark does not show: of all that stand in files, too."""
    files = sorted(filter(is_file, settings.spark_properties))
    names = (re.escape(name.removesuffix(FILE_ENDING)) for name in files)
    return "|".join((REDACTED["spark.redaction.regex"], *names))


def secret_conf(settings: Settings) -> dict[str, str]:
    """Properties whose values stand in files; a driver sets them before its session begins.

    Raises:
        ConfigurationError: a file cannot be read, or holds anything but one line.
    """
    files = {name: path for name, path in settings.spark_properties.items() if is_file(name)}
    return resolved(files, "spark_properties")


def _given(settings: Settings) -> dict[str, str]:
    given = {n: value for n, value in settings.spark_properties.items() if not is_file(n)}
    for name, needed in REQUIRED.items():
        if given.get(name, needed) != needed:
            raise ConfigurationError(
                f"spark_properties has {name} = {given[name]!r}, and Holdfast needs {needed!r}: "
                "remove it",
                key=name,
                seen=given[name],
                needed=needed,
            )
    if legacy := [n for n in given if n.startswith(LEGACY) and n not in REQUIRED]:
        raise ConfigurationError(
            f"spark_properties has {legacy[0]}, by which expressions mean what they meant in an "
            "earlier Spark: remove it, and write them for Spark 4",
            key=legacy[0],
        )
    return given


def _jvm(settings: Settings, master: str | None) -> dict[str, str]:
    """What the driver's JVM loads and how; here, without other machines, also how it starts fast.

    A class archive has what the class path has: jars of ``spark.jars`` come too late for it.
    """
    jars = fetch("spark", directory=settings.jars_dir)
    options = settings.driver_java_options
    if not _is_one_jvm(settings, master):
        return {"spark.jars": ",".join(map(str, jars)), "spark.driver.extraJavaOptions": options}
    archived = () if class_archive.chosen(options) else class_archive.flags(java_home(), jars)
    return {
        CLASS_PATH: os.pathsep.join(map(str, jars)),
        "spark.driver.extraJavaOptions": " ".join((*JVM_START, options, *archived)),
        "spark.python.daemon.module": DAEMON,
        **_SCRATCH,
    }


def _is_one_jvm(settings: Settings, master: str | None) -> bool:
    """Whether executors are threads of the driver: not so with ``local-cluster[…]``."""
    return (master or settings.spark_master).partition("[")[0] == "local"


def _is_local(settings: Settings, master: str | None) -> bool:
    return (master or settings.spark_master).startswith("local")


def shipped(settings: Settings, master: str | None = None) -> Path | None:
    """The archive that executors get; none in local mode, where they are this process.

    Raises:
        ConfigurationError: it does not exist.
    """
    archive = settings.executor_archive
    if archive is None or _is_local(settings, master):
        return None
    if not archive.is_file():
        raise ConfigurationError(
            f"executor_archive {archive} does not exist: make it by `holdfast pack --output "
            f"{archive}`, or remove the setting where executors have Holdfast installed",
            path=str(archive),
        )
    return archive


def python_of_executors(settings: Settings, master: str | None = None) -> str:
    """What runs Spark's Python workers, where they are on this machine or get the archive."""
    return settings.executor_python if shipped(settings, master) else sys.executable
