"""Figures of the README are those that were measured last."""

from __future__ import annotations

import re

from tests.support.documents import ROOT


def test_figures_are_those_of_the_benchmarks() -> None:
    readme = (ROOT / "README.md").read_text()
    measured = (ROOT / "benchmarks" / "README.md").read_text()
    part = readme.split("## Figures")[1].split("\n## ")[0]
    figures = re.findall(r"\d+,\d{3}|\d+\.\d\d", part.replace("4.3.1", ""))
    assert len(figures) > 12
    for one in figures:
        assert one in measured, f"{one} is not in benchmarks/README.md: measured anew?"
