"""Each test file belongs to a stage, so that none is never run."""

from __future__ import annotations

import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
NOT_STAGED = {"tests/benchmarks"}
"""`make test-long`."""


def test_each_chaos_test_is_in_one_stage() -> None:
    stages = tomllib.loads((ROOT / ".ci/stages.toml").read_text())
    named = [t for s in stages.values() for t in s["tests"] if t.startswith("tests/chaos/")]

    assert sorted(named) == sorted(
        str(path.relative_to(ROOT)) for path in ROOT.glob("tests/chaos/test_*.py")
    )


def test_each_folder_is_in_a_stage() -> None:
    stages = tomllib.loads((ROOT / ".ci/stages.toml").read_text())
    named = {Path(t) for s in stages.values() for t in s["tests"] if not t.startswith("--")}

    for path in ROOT.glob("tests/**/test_*.py"):
        relative = path.relative_to(ROOT)
        places = {relative, *relative.parents}
        assert places & named or any(Path(p) in places for p in NOT_STAGED), relative
