"""Whether the JVM is started early; what then becomes of it is in tests/integration/spark."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from state_lib.config import Settings
from state_lib.errors import HoldfastError
from state_lib.spark import jvm
from state_lib.spark.opened import Opened


@pytest.fixture(autouse=True)
def no_jvm(monkeypatch: pytest.MonkeyPatch) -> None:
    def start(*_: Any) -> None:
        raise AssertionError("a JVM is started")

    monkeypatch.setattr(jvm, "Starting", start)
    monkeypatch.delenv(jvm.PORT, raising=False)


def test_what_stands_in_its_way_is_told_by_the_session(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOLDFAST_SPARK_MASTER", "spark://127.0.0.1:7077")
    monkeypatch.setenv("HOLDFAST_EXECUTOR_ARCHIVE", str(tmp_path / "none.zip"))
    opened = Opened("app", settings=Settings.load())
    with pytest.raises(HoldfastError, match=r"none\.zip"):
        opened.session()


@pytest.mark.parametrize("name", ["PYSPARK_SUBMIT_ARGS", "SPARK_TESTING"])
def test_who_tells_pyspark_what_to_start_gets_that(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, "--conf spark.x=y pyspark-shell")
    assert jvm.start("app", Settings.load()) is None
