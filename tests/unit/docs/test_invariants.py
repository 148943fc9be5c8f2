"""The page of the invariants names tests that exist."""

from __future__ import annotations

import ast

from tests.support.documents import ROOT

INVARIANTS = 10
PAGE = (ROOT / "docs" / "invariants.md").read_text()


def test_each_invariant_is_held_by_tests_that_exist() -> None:
    _, *parts = PAGE.split("\n## ")
    assert [part.split(".")[0] for part in parts] == [str(n + 1) for n in range(INVARIANTS)]
    for part in parts:
        rows = [line for line in part.splitlines() if line.startswith("| `")]
        assert rows, part.splitlines()[0]
        for row in rows:
            file, *named = [text for n, text in enumerate(row.split("`")) if n % 2]
            tree = ast.parse((ROOT / file).read_text())
            found = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
            assert named, file
            assert set(named) <= found, (file, set(named) - found)
