"""What a user's session must have for a stream, as far as its settings tell."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.connect.session import SparkSession as RemoteSession

from state_lib import Application, TopologyTestDriver
from state_lib.errors import ConfigurationError
from state_lib.spark import given


@pytest.mark.parametrize(
    ("master", "failures", "said"),
    [
        ("local", "4", r"'local' and must be 'local\[1,4\]'"),
        ("local[*]", "4", r"'local\[\*\]' and must be 'local\[\*,4\]'"),
        ("local[8]", "4", r"must be 'local\[8,4\]'.*before the session is made"),
        ("spark://there:7077", "1", "maxFailures is '1' and must be 2 or more"),
    ],
)
def test_one_try_per_task_is_refused(master: str, failures: str, said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        given._check_tries(master, failures)


@pytest.mark.parametrize(
    ("master", "failures"), [("local[2,4]", "1"), ("local[*, 3]", "4"), ("yarn", "4")]
)
def test_several_tries_are_taken(master: str, failures: str) -> None:
    given._check_tries(master, failures)


class _Session:
    """As far as workers' Python is looked at."""

    def __init__(self, python: str, master: str = "local[2,4]") -> None:
        self.sparkContext = self
        self.pythonExec, self.master = python, master


def asked(python: str, **more: Any) -> None:
    session: Any = _Session(python, **more)
    given._check_python(session)


def test_workers_without_holdfast_are_refused(tmp_path: Path) -> None:
    other = tmp_path / "python"
    other.write_text("#!/bin/sh\necho 'ModuleNotFoundError: No module named state_lib' >&2; exit 1")
    other.chmod(0o755)
    with pytest.raises(ConfigurationError, match=r"has no Holdfast .*No module.*PYSPARK_PYTHON="):
        asked(str(other))
    with pytest.raises(ConfigurationError, match="has no Holdfast"):
        asked(str(tmp_path / "none"))
    asked(str(other), master="spark://there:7077")


def test_workers_with_holdfast_are_taken(tmp_path: Path) -> None:
    asked(sys.executable)
    link = tmp_path / "python3"
    link.write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"')
    link.chmod(0o755)
    asked(str(link))


def test_a_session_of_spark_connect_is_refused() -> None:
    """There is no server that it could speak to: nothing is asked of it."""
    remote: Any = object.__new__(RemoteSession)
    for use in (lambda: Application("app", remote), lambda: TopologyTestDriver(print, remote)):
        with pytest.raises(ConfigurationError, match=r"Spark Connect.* needs its JVM"):
            use()
