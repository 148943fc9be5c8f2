"""Each test file belongs to a stage, so that none is never run."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
NOT_STAGED = {"tests/benchmarks"}
"""`make test-long`."""
FULL = re.compile(r"pytest\.mark\.full\b")
ALL_FULL = re.compile(r"^pytestmark = (\[[^\]]*)?pytest\.mark\.full\b", re.MULTILINE)


def test_each_chaos_test_is_in_one_stage() -> None:
    stages = tomllib.loads((ROOT / ".ci/stages.toml").read_text())
    named = [t for s in stages.values() for t in s["tests"] if t.startswith("tests/chaos/")]

    assert sorted(named) == sorted(
        str(path.relative_to(ROOT)) for path in ROOT.glob("tests/chaos/test_*.py")
    )


def test_each_file_is_in_one_stage_of_its_sort() -> None:
    """Of a full one if it has full tests, and of another if it has others: never in two."""
    stages = tomllib.loads((ROOT / ".ci/stages.toml").read_text())

    for path in ROOT.glob("tests/**/test_*.py"):
        file, text = path.relative_to(ROOT), path.read_text("utf-8")
        if _within(file, NOT_STAGED):
            continue
        sorts = {True} if ALL_FULL.search(text) else {False, FULL.search(text) is not None}
        for full in sorts:
            found = [
                name
                for name, stage in stages.items()
                if stage.get("full", False) is full and _runs(stage["tests"], file)
            ]
            assert len(found) == 1, (str(file), full, found)


def test_each_stage_is_run_by_one_of_the_three() -> None:
    """`make test` and `make test-full` run what is not asked for, `make test-longest` the rest."""
    stages = tomllib.loads((ROOT / ".ci/stages.toml").read_text())
    asked = sorted(name for name, stage in stages.items() if stage.get("asked", False))
    makefile = (ROOT / "Makefile").read_text()
    in_ci = re.search(r"^IN_CI := (.*)$", makefile, re.MULTILINE)
    longest = re.search(
        r"^test-longest:.*\n\t@python \.ci/gate\.py \$\(IN_CI\) (.*)$", makefile, re.MULTILINE
    )
    assert in_ci is not None
    assert longest is not None

    assert sorted([*in_ci[1].split(), *longest[1].split()]) == asked
    for target in ("gate.py --quick\n", "gate.py --full\n", "gate.py --quick --full $(IN_CI) "):
        assert target in makefile


def _runs(tests: list[str], file: Path) -> bool:
    left_out = {t.partition("=")[2] for t in tests if t.startswith("--ignore=")}
    return _within(file, set(tests)) and not _within(file, left_out)


def _within(file: Path, places: set[str]) -> bool:
    return not places.isdisjoint(map(str, [file, *file.parents]))
