"""A standalone Spark cluster on loopback: a master and two workers from pyspark's own jars."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyspark

from state_lib.stack.java import java_home
from state_lib.stack.ports import free_port
from state_lib.stack.probes import listening
from tests.support import jvm
from tests.support.waiting import SLOWNESS, until

CLASS = "org.apache.spark.deploy"


@contextmanager
def spark_cluster(home: Path) -> Iterator[str]:
    """Yield the master's URL; ends every process it started."""
    home.mkdir(parents=True)
    spark_class = Path(pyspark.__file__).parent / "bin" / "spark-class"
    environment = {
        **os.environ,
        "JAVA_HOME": str(java_home()),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_WORKER_DIR": str(home / "work"),
        "SPARK_DAEMON_MEMORY": "256m",
        "JDK_JAVA_OPTIONS": jvm.options(),  # which executors inherit
    }
    port = free_port()
    master = f"spark://127.0.0.1:{port}"
    started: list[subprocess.Popen[bytes]] = []

    def start(name: str, *arguments: str) -> None:
        with (home / f"{name}.log").open("w") as log:
            command = [str(spark_class), *arguments, "--host", "127.0.0.1", "--webui-port", "0"]
            started.append(
                subprocess.Popen(command, env=environment, stdout=log, stderr=subprocess.STDOUT)
            )

    try:
        start("master", f"{CLASS}.master.Master", "--port", str(port))
        until(lambda: listening("127.0.0.1", port), 60, "the master of Spark listening")
        for i in (1, 2):
            start(f"worker-{i}", f"{CLASS}.worker.Worker", "-c", "2", "-m", "1g", master)
        yield master
    finally:
        for process in reversed(started):
            process.terminate()
        for process in started:
            process.wait(30 * SLOWNESS)
