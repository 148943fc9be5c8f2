"""The command line without a stack: help, errors, exit codes."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from state_lib.cli import app

run = CliRunner()


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOLDFAST_HOME", str(tmp_path / "home"))


@pytest.mark.parametrize("command", ["up", "down", "status", "logs"])
def test_help_has_examples(command: str) -> None:
    result = run.invoke(app, [command, "--help"])
    assert result.exit_code == 0
    assert f"holdfast {command}" in result.output


def test_wrong_usage_is_2() -> None:
    assert run.invoke(app, ["up", "--nosuch"]).exit_code == 2


def test_our_errors_are_1_and_one_message() -> None:
    result = run.invoke(app, ["up", "--only", "nosuch"])
    assert result.exit_code == 1
    assert result.stderr.startswith("Error: no service 'nosuch'")
    assert "Traceback" not in result.output


def test_status_without_a_stack_is_3() -> None:
    result = run.invoke(app, ["status", "--json"])
    assert result.exit_code == 3
    found = json.loads(result.stdout)
    assert found["supervisor_pid"] is None
    assert {service["state"] for service in found["services"]} == {"stopped"}


def test_down_and_logs_without_a_stack(tmp_path: Path) -> None:
    assert run.invoke(app, ["down"]).exit_code == 0
    assert not (tmp_path / "home").exists(), "nothing is made by looking"
    assert run.invoke(app, ["logs"]).exit_code == 1
    assert run.invoke(app, ["logs", "../../etc/passwd"]).exit_code == 1
