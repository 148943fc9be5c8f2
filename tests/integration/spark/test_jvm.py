"""Spark's JVM is started early, joined, and gone with its driver. In processes of their own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import jvm as jvms
from tests.support.waiting import until

JOINED = """
import os
from state_lib.config import Settings
from state_lib.spark import jvm
settings = Settings.load()
starting = jvm.start("early", settings)
assert starting is not None and starting.join() and starting.join()
from state_lib.spark.session import open_session
spark = open_session("early", settings)
pid = spark._jvm.java.lang.ProcessHandle.current().pid()
assert pid == starting.pid, (pid, starting.pid)
assert spark.sparkContext.appName == "holdfast-early"
assert spark.range(5).count() == 5
seen = spark.sparkContext.getConf()
assert seen.get("spark.hadoop.some.size") == "7"
assert seen.get("spark.hadoop.some.secret") == "hidden"
assert b"hidden" not in open(f"/proc/{pid}/cmdline", "rb").read()
assert jvm.start("early", settings) is None
print(pid, flush=True)
os._exit(0)
"""
OPENED = """
import os, subprocess, sys
from state_lib.config import Settings
from state_lib.spark.opened import Opened
mine = Opened("early", settings=Settings.load()).session().sparkContext
assert mine._gateway.proc is None, "it was joined"
asked = "from pyspark import SparkContext; SparkContext('local[1]', 'beside').stop()"
done = subprocess.run([sys.executable, "-c", asked], stderr=subprocess.PIPE, text=True)
assert done.returncode == 0, done.stderr
print(mine.parallelize([7]).first(), flush=True)
os._exit(0)
"""
REFUSED = """
from pyspark.errors import PySparkRuntimeError
from state_lib.config import Settings
from state_lib.spark import jvm
from state_lib.spark.session import open_session
settings = Settings.load()
starting = jvm.start("early", settings)
assert starting is not None and not starting.join()
try:
    open_session("early", settings)
except PySparkRuntimeError as error:
    print(error.getCondition())
"""
LEFT = """
import glob, tempfile
from pathlib import Path
from state_lib.config import Settings
from state_lib.spark import jvm
starting = jvm.start("early", Settings.load())
pid = starting.pid
def there():
    return len(glob.glob(tempfile.gettempdir() + "/holdfast-jvm-*")), Path(f"/proc/{pid}").exists()
assert there() == (1, True)
print(pid)
"""
AT_ONCE = "assert there() == (0, False), there()"


def run(script: str, tmp_path: Path, options: str) -> str:
    secret = tmp_path / "secret"
    secret.write_text("hidden\n")
    properties = {"spark.hadoop.some.size": "7", "spark.hadoop.some.secret_file": str(secret)}
    variables = {
        "HOLDFAST_SPARK_PROPERTIES": json.dumps(properties),
        "HOLDFAST_HOME": str(tmp_path),
        "HOLDFAST_DRIVER_JAVA_OPTIONS": options,
        "TMPDIR": str(tmp_path),
    }
    done = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_pyspark_joins_it_and_it_ends_with_its_driver(tmp_path: Path) -> None:
    pid = int(run(JOINED, tmp_path, jvms.options(jvms.QUICK)))
    until(lambda: not Path(f"/proc/{pid}").exists())


def test_programs_that_its_driver_starts_have_jvms_of_their_own(tmp_path: Path) -> None:
    assert run(OPENED, tmp_path, jvms.options(jvms.QUICK)) == "7"


@pytest.mark.parametrize(
    "then",
    [f"starting.close(); starting.close(); {AT_ONCE}", f"del starting; {AT_ONCE}", ""],
    ids=["closed", "dropped", "end-of-process"],
)
def test_one_that_nobody_joins_leaves_nothing(then: str, tmp_path: Path) -> None:
    pid = run(LEFT + then, tmp_path, jvms.options(jvms.QUICK))
    assert not Path(f"/proc/{pid}").exists()
    assert not list(tmp_path.glob("holdfast-jvm-*"))


def test_one_that_does_not_come_up_is_pysparks_to_explain(tmp_path: Path) -> None:
    assert run(REFUSED, tmp_path, f"{jvms.QUICK} -XX:+UseParallelGC").endswith(
        "JAVA_GATEWAY_EXITED"
    )
