"""Spark's own programs know the options that docker/compose.yaml gives them."""

import os
import re
import subprocess
from pathlib import Path

import pyspark
import pytest

from state_lib.stack.java import java_home
from tests.support import jvm
from tests.support.compose import service


@pytest.mark.parametrize("name", ["spark-master", "spark-worker-1"])
def test_spark_knows_every_option(name: str) -> None:
    program, main, *arguments = service(name)["command"]
    environment = {
        **os.environ,
        "JAVA_HOME": str(java_home()),
        "JDK_JAVA_OPTIONS": jvm.options(jvm.QUICK),
    }
    usage = subprocess.run(
        [Path(pyspark.__file__).parent / "bin" / program, main, "--help"],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    ).stderr
    known = set(re.findall(r"--[a-z-]+", usage))
    used = {one for one in arguments if one.startswith("--")}
    assert used
    assert used <= known, usage
