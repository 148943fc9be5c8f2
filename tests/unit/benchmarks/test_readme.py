"""Tables in the benchmarks' README have the columns that the commands write, and the text names."""

from __future__ import annotations

import re

import pytest

from benchmarks import report
from benchmarks.layers.__main__ import COLUMNS
from benchmarks.suite import SUITE

TEXT = report.README.read_text()
BLOCKS = dict(re.findall(r"<!-- begin (\S+) -->\n(.*?)<!-- end \1 -->", TEXT, re.DOTALL))
MEASURED = sorted(name for name, block in BLOCKS.items() if "|" in block)


def test_all_were_measured() -> None:
    assert {"layers", *(benchmark.name for benchmark in SUITE)} <= set(MEASURED)


@pytest.mark.parametrize("name", MEASURED)
def test_columns(name: str) -> None:
    lines = [line for line in BLOCKS[name].splitlines() if line.startswith("|")]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    assert tuple(rows[0]) == (COLUMNS if name == "layers" else report.COLUMNS)
    assert {len(row) for row in rows} == {len(rows[0])}
