"""Rights as the command prints them. What they are good for: tests/integration/test_kafka_security.

The declaration is a job's own, so that rights can be granted before its first start.
"""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from state_lib.acls import ROLES, Right, commands
from state_lib.changelog import claims
from state_lib.cli import app
from state_lib.errors import NotFound
from tests.support.command import CODE

JOB = """
from tests.support.declared import counting
app = counting("words", {"lines": "counts"}, 2, outputs=("changes",))
"""
WRITTEN = """
from state_lib import Application
app = Application("written", partitions=2)
lines = app.stream("lines", format="text").where("value <> ''")
lines.groupBy("value").count("counts").toStream().to("changes")
if __name__ == "__main__":
    app.run()
"""
run = CliRunner()


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "jobs").mkdir()
    (tmp_path / "jobs" / "a_file_of_another_name.py").write_text(JOB)
    monkeypatch.chdir(tmp_path)
    return tmp_path / "jobs"


def test_a_job_as_users_write_it(folder: Path) -> None:
    """In a process of its own: it is imported, which opens Spark."""
    (folder / "written.py").write_text(WRITTEN)
    (folder / "a_file_of_another_name.py").unlink()
    done = subprocess.run(
        [sys.executable, "-c", CODE, "acls", "written", "--role", "host", "--json"],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    named = {row["name"] for row in json.loads(done.stdout) if row["kind"] == "topic"}
    assert {"written-counts-changelog", "changes"} <= named


def test_a_job_that_cannot_be_imported_here_is_asked_of_the_brokers(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(_: object, app: str) -> None:
        raise NotFound(f"no driver of application {app!r} ever started")

    (folder / "words.py").write_text("raise RuntimeError('no Java here')")
    monkeypatch.setattr(claims, "topology_of", never)
    result = run.invoke(app, ["acls", "words"])
    assert result.exit_code == 1
    said = " ".join(result.stderr.split())
    assert "no driver of application 'words' ever started" in said
    assert "cannot be read here (RuntimeError: no Java here)" in said


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
