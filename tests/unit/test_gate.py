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
