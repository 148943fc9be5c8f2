"""What the command says where there is no verdict."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from state_lib.cli import _check, app

run = CliRunner()


def test_a_fault_of_ours_is_no_mere_warning(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def broken(*args: Any, **more: Any) -> None:
        raise ValueError(f"{len(args)} {sorted(more)}: no such number")

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(_check, "gather", broken)
    result = run.invoke(app, ["check", "words"])
    assert result.exit_code == 2, result.output
    assert "no such number" in result.stderr
    result = run.invoke(app, ["check", "words", "--json"])
    assert result.exit_code == 2, result.output
    found = json.loads(result.stdout)
    assert (found["level"], found["error"]["code"]) == ("fail", "internal")
