"""The gate is green only if pytest came to its end and found nothing wrong."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import pytest

CI = Path(__file__).parents[2] / ".ci"
GREEN = "def test_it(): pass\n"
DIES = """
import json
def test_it(monkeypatch): monkeypatch.setattr(json, "dumps", lambda *_, **__: {})
def test_never_run(): raise AssertionError
"""


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(CI))
    return importlib.import_module("gate")


@pytest.mark.parametrize(
    ("code", "red"), [(GREEN, False), (DIES, True), ("def test_it(): raise ValueError\n", True)]
)
def test_a_stage_is_red(gate: Any, tmp_path: Path, code: str, red: bool) -> None:
    (tmp_path / "test_one.py").write_text(code)
    stage = gate.Stage("one", [str(tmp_path)], 60)

    result = gate.run(stage, 1, 3, beside=False)

    assert result.red is red, result


@pytest.mark.parametrize("slow", [False, True])
def test_ci_on_a_slow_machine_says_what_it_leaves_out(
    gate: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    slow: bool,
) -> None:
    (tmp_path / "test_one.py").write_text(GREEN)
    tests = f'tests = ["{tmp_path}"]\nlimit_s = 60\n'
    later = f"[first]\n{tests}[second]\nlater = true\n{tests}"
    (tmp_path / "stages.toml").write_text(later)
    monkeypatch.setattr(gate, "__file__", str(tmp_path / "gate.py"))
    monkeypatch.setattr(gate, "CI_S", 50 if slow else 4800)
    monkeypatch.setattr("sys.argv", ["gate.py", "--quick", "--full"])

    assert gate.main() == 0

    said = capsys.readouterr().out
    assert ("NOT RUN, CI has no time for it on this machine: second" in said) is slow
    assert ("1 passed, 0 failed" in said) is slow
