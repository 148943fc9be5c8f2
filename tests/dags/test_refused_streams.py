"""What only a person can correct fails a stream's task at once, with the way to correct it."""

from __future__ import annotations

from typing import Any

import pytest
from airflow.sdk import DagRunState

from state_lib.exits import IN_LOG
from state_lib.stack.paths import Paths
from state_lib.stack.ports import free_port
from tests.dags.conftest import Connect, Scripts

BINARY = {"spark-binary": "spark3-submit"}


def supervise(scripts: Scripts, app: str) -> tuple[Any, int]:
    """State of a run, and how often its task was tried."""
    run = scripts.dag(app).test()
    ti = run.get_task_instance("supervise")
    assert ti is not None
    return run.state, ti.try_number


def test_a_job_file_that_does_not_exist(
    scripts: Scripts, capsys: pytest.CaptureFixture[str]
) -> None:
    assert supervise(scripts, "fileless") == (DagRunState.FAILED, 1)
    assert "nowhere.py does not exist" in capsys.readouterr().out


def test_a_master_that_does_not_answer(
    scripts: Scripts, connect: Connect, capsys: pytest.CaptureFixture[str]
) -> None:
    scripts.says("masterless", "run")
    connect(f"spark://127.0.0.1:{free_port()}", "masterless", extra=BINARY)
    assert supervise(scripts, "masterless") == (DagRunState.FAILED, 1)
    assert "correct the connection" in capsys.readouterr().out


@pytest.mark.usefixtures("hosts")
def test_a_token_that_the_hosts_refuse(
    scripts: Scripts, capsys: pytest.CaptureFixture[str]
) -> None:
    scripts.says("tokenless", "run")
    assert supervise(scripts, "tokenless") == (DagRunState.FAILED, 1)
    assert "HOLDFAST_TOKEN_FILE" in capsys.readouterr().out
    assert scripts.sight("tokenless", lambda _: True).epoch == -1, "no driver was started"


def test_a_driver_that_another_start_cannot_help(
    scripts: Scripts, capsys: pytest.CaptureFixture[str]
) -> None:
    """It has claimed nothing: there is no topic yet in which it could say so."""
    scripts.says("refusing", "refuse")
    assert supervise(scripts, "refusing") == (DagRunState.FAILED, 1)
    said = capsys.readouterr().out
    assert "given up on refusing: starting it again cannot help" in said
    assert "refused, as the test wants it" in said
    log = Paths(scripts.settings.home).log("refusing").read_text()
    assert log.count(f'"event": "{IN_LOG}"') == 1, "it was started once"
    assert scripts.sight("refusing", lambda _: True).epoch == -1
