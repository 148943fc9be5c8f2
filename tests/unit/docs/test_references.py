"""What code refers to is in this repository."""

from __future__ import annotations

import re

from tests.support.documents import ROOT

ELSEWHERE = re.compile(r"\b[s]hared/|\b(?:DESIGN|STYLE|CONFORMANCE|PERFORMANCE)\.md\b")
"""Papers of those who build it: what holds for a reader stands in docs/."""
PAGE = re.compile(r"\bdocs/[\w./-]+\.md\b")
DECISION = re.compile(r"\bdocs/adr/(\d{4})\b")
FOLDERS = ("state_lib", "plugins", "jobs", "dags", "benchmarks", "docs", "tests")


def test_nothing_refers_to_papers_from_outside() -> None:
    files = [p for f in FOLDERS for kind in ("*.py", "*.md") for p in (ROOT / f).rglob(kind)]
    assert len(files) > 500
    found = {str(p.relative_to(ROOT)): ELSEWHERE.findall(p.read_text("utf-8")) for p in files}
    assert {name: words for name, words in found.items() if words} == {}


def test_pages_that_code_names_exist() -> None:
    decisions = {path.name[:4] for path in (ROOT / "docs" / "adr").glob("*.md")}
    for path in (p for f in ("state_lib", "plugins") for p in (ROOT / f).rglob("*.py")):
        text = path.read_text("utf-8")
        gone = [page for page in PAGE.findall(text) if not (ROOT / page).exists()]
        assert not gone, f"{path.relative_to(ROOT)} names {gone}"
        assert set(DECISION.findall(text)) <= decisions, path
