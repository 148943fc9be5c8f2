"""What a benchmark says it ran on."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from benchmarks import machine


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """One of git, with a module and results in its benchmarks/."""
    module = tmp_path / "benchmarks" / "machine.py"
    module.parent.mkdir()
    shutil.copy(machine.__file__, module)
    module.with_name("README.md").write_text("no results\n")
    who = ["-c", "user.name=a", "-c", "user.email=a@b"]
    for command in (["init", "-q"], ["add", "-A"], [*who, "commit", "-qm", "all"]):
        subprocess.run(["git", *command], cwd=tmp_path, check=True)
    monkeypatch.setattr(machine, "__file__", str(module))
    return tmp_path


def test_results_that_were_written_change_no_code(repository: Path) -> None:
    clean = machine._commit()
    assert clean != "unknown"
    (repository / "benchmarks" / "README.md").write_text("results\n")
    assert machine._commit() == clean
    (repository / "benchmarks" / "machine.py").write_text("")
    assert machine._commit() == f"{clean}-dirty"
