"""Rights as the command prints them. What they are good for: tests/integration/test_kafka_security.

The declaration is a job's own, so that rights can be granted before its first start.
"""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest
from typer.testing import CliRunner

from state_lib.acls import ROLES, Right, commands
from state_lib.cli import app

JOB = """
from tests.support.declared import counting
app = counting("words", {"lines": "counts"}, 2, outputs=("changes",))
"""
run = CliRunner()


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "jobs").mkdir()
    (tmp_path / "jobs" / "a_file_of_another_name.py").write_text(JOB)
    monkeypatch.chdir(tmp_path)


def test_every_role_from_a_job_that_has_never_run() -> None:
    result = run.invoke(app, ["acls", "words", "--json"])
    assert result.exit_code == 0, result.output
    rows = json.loads(result.stdout)
    assert {row["role"] for row in rows} == set(ROLES)
    assert {row["principal"] for row in rows} == {f"User:{role}" for role in ROLES}
    hosts = {(r["kind"], r["name"]): r["operations"] for r in rows if r["role"] == "host"}
    assert hosts["transactional-id", "words-1"] == ["WRITE"]
    assert hosts["topic", "words-counts-changelog"] == ["DESCRIBE_CONFIGS", "READ", "WRITE"]


def test_commands_for_one_principal() -> None:
    arguments = ["acls", "words", "--role", "loader", "--role", "host", "--principal", "User:x y"]
    result = run.invoke(app, arguments)
    assert result.exit_code == 0, result.output
    assert "# loader: " in result.stdout
    assert "# driver: " not in result.stdout
    lines = [x for x in result.stdout.replace("\\\n", "").splitlines() if not x.startswith("#")]
    for line in lines:
        words = shlex.split(line)
        assert words[0] == "kafka-acls"
        assert words[words.index("--allow-principal") + 1] == "User:x y"


def test_one_command_for_the_same_operations() -> None:
    needed = [
        Right("topic", "a", ("DESCRIBE_CONFIGS", "READ")),
        Right("topic", "b", ("DESCRIBE_CONFIGS", "READ")),
        Right("group", "a", ("READ",)),
    ]
    first, second = commands("kafka:9093", "User:x", needed)
    assert "--operation DescribeConfigs --operation Read" in first
    assert first.count("--topic") == 2
    assert "--group a" in second


def test_an_unknown_role_is_refused() -> None:
    result = run.invoke(app, ["acls", "words", "--role", "root"])
    assert result.exit_code == 1
    assert "no roles ['root']; there are: driver, host" in result.stderr
