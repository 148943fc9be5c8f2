"""What the documentation tells people to type: commands, options, settings, imports."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
from pathlib import Path

import pytest

from state_lib.config import FILE, PREFIX, Settings
from state_lib.drivers import identity
from tests.support.documents import Page, current, made
from tests.support.typed import examples, parsed, problem, typed

OURS = ("state_lib", "holdfast_airflow")
SETTINGS = {PREFIX + name.upper() for name in Settings.model_fields}
OF_DRIVERS = {value for name, value in vars(identity).items() if name.endswith("_VARIABLE")}
"""Set by who launches a driver, not by people."""

OTHER_NAMES = {"holdfast_airflow", "holdfast_default"}
"""The package of Airflow's side, and its connection."""

pages = pytest.mark.parametrize("page", current(), ids=lambda page: page.path)


@pages
def test_command_lines_are_understood(page: Page) -> None:
    for block in page.blocks:
        if block.language == "console":
            for line in block.commands():
                for words in typed(line):
                    assert parsed(words) is None, (page.path, line, parsed(words))


@pages
def test_commands_in_sentences_exist(page: Page) -> None:
    for text in page.code:
        for words in typed(text):
            assert problem(words) is None, (page.path, text, problem(words))


def test_examples_of_the_help_are_understood() -> None:
    found = list(examples())
    assert len(found) > 40
    for line in found:
        for words in typed(line):
            assert parsed(words) is None, (line, parsed(words))


@pages
def test_variables_are_settings(page: Page) -> None:
    text = "\n".join([*page.code, *(block.text for block in page.blocks)])
    for name in re.findall(rf"\b{PREFIX}[A-Z0-9_]*[A-Z0-9]\b", text):
        assert name in SETTINGS | OF_DRIVERS, (page.path, name)


@pages
def test_metrics_are_exported(page: Page) -> None:
    exported = set(made()["docs/reference/metrics.md"].code)
    for name in page.code:
        if re.fullmatch(r"holdfast_[a-z_]+", name) and name not in OTHER_NAMES:
            assert name in exported, (page.path, name)


@pages
def test_configuration_is_read_as_settings(
    page: Page, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for block in page.blocks:
        if block.language == "toml":
            (tmp_path / FILE).write_text(block.text)
            assert Settings.load().model_fields_set, page.path


@pages
def test_python_compiles_and_its_imports_of_ours_exist(page: Page) -> None:
    for block in page.blocks:
        if block.language == "python":
            tree = ast.parse(block.text, f"{page.path}:{block.line}")
            compile(tree, f"{page.path}:{block.line}", "exec")
            for node in ast.walk(tree):
                if isinstance(node, ast.ImportFrom) and str(node.module).startswith(OURS):
                    module = importlib.import_module(str(node.module))
                    for one in node.names:
                        assert hasattr(module, one.name), (page.path, one.name)


@pages
def test_calls_of_our_functions_name_parameters_that_exist(page: Page) -> None:
    """Of what was imported by the block itself, so that an argument that was renamed is noticed."""
    for block in page.blocks:
        if block.language == "python":
            known = imported(ast.parse(block.text))
            for node in ast.walk(ast.parse(block.text)):
                if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                    check(known.get(node.func.id), node, page.path)


def imported(tree: ast.Module) -> dict[str, object]:
    """Functions and classes of ours that a block imports, by the name that it gives them."""
    found: dict[str, object] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and str(node.module).startswith(OURS):
            module = importlib.import_module(str(node.module))
            found |= {one.asname or one.name: getattr(module, one.name) for one in node.names}
    return found


def check(called: object, node: ast.Call, path: str) -> None:
    if callable(called):
        parameters = inspect.signature(called).parameters
        if all(one.kind is not one.VAR_KEYWORD for one in parameters.values()):
            given = {one.arg for one in node.keywords if one.arg}
            assert given <= set(parameters), (path, given - set(parameters))
