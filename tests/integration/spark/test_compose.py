"""Spark's own programs as docker/compose.yaml has them: its options, commands and health checks."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path
from typing import Any

import httpx
import psutil
import pyspark
import pytest

from state_lib.stack.java import java_home
from tests.support import jvm
from tests.support.compose import SPARK, SPARK_WORKERS, environment, service
from tests.support.composed import Composed
from tests.support.waiting import until


def java() -> dict[str, str]:
    """Variables for a JVM of this machine."""
    return {"JAVA_HOME": str(java_home()), "JDK_JAVA_OPTIONS": jvm.options(jvm.QUICK)}


@pytest.mark.parametrize("name", ["spark-master", "spark-worker-1"])
def test_spark_knows_every_option(name: str) -> None:
    program, main, *arguments = service(name)["command"]
    usage = subprocess.run(
        [Path(pyspark.__file__).parent / "bin" / program, main, "--help"],
        env={**os.environ, **java()},
        capture_output=True,
        text=True,
        check=False,
    ).stderr
    known = set(re.findall(r"--[a-z-]+", usage))
    used = {one for one in arguments if one.startswith("--")}
    assert used
    assert used <= known, usage


@pytest.mark.full
def test_master_and_workers_by_their_commands(tmp_path: Path) -> None:
    """Until all are healthy, and the workers have found the master by its name in the file."""
    stack = Composed(tmp_path)
    try:
        for name in SPARK:  # in the order of the file: workers wait for a master that is healthy
            stack.start(name, SPARK_LOCAL_IP="127.0.0.1", **java())
            stack.await_healthy(name)
        until(lambda: seen(stack)["aliveworkers"] == len(SPARK_WORKERS), 60, "both registered")
        found = seen(stack)
        assert found["url"] == f"spark://{stack.address('spark-master')}"
        assert found["cores"] == sum(int(given(name, "--cores")) for name in SPARK_WORKERS)
        gib = [given(name, "--memory") for name in SPARK_WORKERS]
        assert found["memory"] == sum(1024 * int(one.removesuffix("g")) for one in gib)
        pages = {one["webuiaddress"].rpartition(":")[2] for one in found["workers"]}
        assert pages == {str(stack.ports[f"{name}:8081"]) for name in SPARK_WORKERS}
        master = psutil.Process(stack.processes["spark-master"].pid)
        assert environment("spark-master")["SPARK_MASTER_OPTS"] in master.cmdline()
        for name in SPARK_WORKERS:
            assert (stack.folder / name / "spark").is_dir(), "which is its volume"
    finally:
        stack.stop()


def seen(stack: Composed) -> dict[str, Any]:
    """What the master tells."""
    url = f"http://{stack.address('spark-master', '8080')}/json/"
    told: dict[str, Any] = httpx.get(url, trust_env=False, timeout=30).json()
    return told


def given(name: str, option: str) -> str:
    """What the file gives a service for an option."""
    command: list[str] = service(name)["command"]
    return command[command.index(option) + 1]
