"""The site: every page is in it and can be reached, every link leads somewhere, and it builds."""

from __future__ import annotations

import ast
import importlib.util
import json
import shutil
import subprocess
import sys
from pathlib import Path, PurePosixPath

import pytest

from docs.generate import python
from docs.generate.pages import BESIDE, gather, generated
from tests.support.documents import ROOT, Page, made, navigation, site, written

PAGES = {**written(), **made()}
OUTSIDE = ("http://", "https://", "mailto:")
PROVIDER = ROOT / "plugins" / "holdfast_airflow"
PUBLIC = ("Operator", "Sensor", "Trigger", "Notifier", "Hook", "_dag")
"""How the names end of what a DAG is written with."""


def test_every_page_is_in_the_navigation_once() -> None:
    found = list(navigation())
    assert len(found) == len(set(found))
    assert set(found) == set(PAGES)


@pytest.mark.parametrize("page", PAGES.values(), ids=lambda page: page.path)
def test_every_link_leads_somewhere(page: Page) -> None:
    for link in page.links:
        if not link.startswith(OUTSIDE):
            check(page, link)


def check(page: Page, link: str) -> None:
    name, _, anchor = link.partition("#")
    target = resolve(page.path, name) if name else page.path
    files = {*PAGES, *BESIDE, *(str(path) for path in generated())}
    assert target in files, f"{page.path}: no page at {link!r}"
    if anchor:
        assert anchor in PAGES[target].anchors, f"{page.path}: no heading at {link!r}"


def resolve(page: str, link: str) -> str:
    """A relative link as a path below the root."""
    parts: list[str] = []
    for part in (PurePosixPath(page).parent / link).parts:
        if part == "..":
            parts.pop()
        else:
            parts.append(part)
    return "/".join(parts)


def test_written_pages_do_not_depend_on_made_ones() -> None:
    """They are read in the repository as well, where nothing was made."""
    for page in written().values():
        for link in page.links:
            if not link.startswith(OUTSIDE):
                name = link.partition("#")[0]
                assert not name or (ROOT / resolve(page.path, name)).exists(), (page.path, link)


def test_modules_of_the_reference_exist() -> None:
    for page in python.PAGES.values():
        for module in page.modules:
            assert importlib.util.find_spec(module) is not None, module


def test_the_reference_has_all_that_a_dag_is_written_with() -> None:
    shown = {module for page in python.PAGES.values() for module in page.modules}
    found = {
        ".".join(file.relative_to(PROVIDER.parent).with_suffix("").parts): one.name
        for file in PROVIDER.rglob("*.py")
        for one in ast.parse(file.read_text()).body
        if isinstance(one, ast.ClassDef | ast.FunctionDef)
        if one.name.endswith(PUBLIC) and not one.name.startswith("_")
    }
    assert {"WatchConditionOperator", "LogNotifier", "JobTrigger"} <= set(found.values())
    assert {module: name for module, name in found.items() if module not in shown} == {}


def test_the_description_of_the_hosts_is_one() -> None:
    found = json.loads(generated()[Path("docs/reference/openapi.json")])
    assert found["openapi"].startswith("3.")
    assert "/v1/apps/{app}/stores/{store}/keys/{key}" in found["paths"]


def test_it_builds_without_a_warning(tmp_path: Path) -> None:
    gather(ROOT, tmp_path / site()["docs_dir"])
    shutil.copy(ROOT / "zensical.toml", tmp_path)
    command = [str(Path(sys.executable).parent / "zensical"), "build", "--strict"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "warning" not in (done.stdout + done.stderr).lower()
    built = tmp_path / site()["site_dir"]
    assert "holdfast restore run" in (built / "docs/reference/commands/index.html").read_text()
    assert "state_lib.application" in (built / "docs/reference/jobs/index.html").read_text()
