"""A session without Kafka's jars: a stream and a test say what it lacks."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from state_lib.stack.java import java_home
from tests.support import jvm
from tests.support.waiting import SLOWNESS

pytestmark = pytest.mark.timeout(300)
SCRIPT = """
import json, sys
from pyspark.sql import SparkSession
from state_lib import Application, ConfigurationError, TopologyTestDriver

builder = SparkSession.builder.master("local[2,4]").config("spark.ui.enabled", "false")
spark = builder.config("spark.driver.extraJavaOptions", sys.argv[1]).getOrCreate()

def build(app):
    app.stream("lines", format="text").groupBy("value").count("counts")

def start():
    app = Application("bare", spark)
    build(app)
    app.start()

def said(use):
    try:
        use()
    except ConfigurationError as error:
        return error.message
    return "nothing"

print(json.dumps([said(start), said(lambda: TopologyTestDriver(build, spark))]))
spark.stop()
"""


def test_what_it_lacks_is_said_at_the_start(tmp_path: Path) -> None:
    """In a process of its own: a JVM has its jars from the first session on."""
    there = {
        "JAVA_HOME": str(java_home()),
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, jvm.options(jvm.QUICK)],
        env={**os.environ, **there},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=90 * SLOWNESS,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    started, tested = json.loads(done.stdout.splitlines()[-1])
    assert "the session has no Kafka source" in started
    assert "state_lib.stack.jars.fetch('spark')" in started
    assert "lacks kafka-clients" in tested
    assert "state_lib.testing.local_session()" in tested
