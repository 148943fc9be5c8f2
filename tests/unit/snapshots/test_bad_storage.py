"""Storage that is full or read-only: said with its URL, nothing listed, the next try works."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.integration.test_disk_full import REPOSITORY, SPACES, may_mount


@pytest.mark.skipif(not may_mount(), reason="needs unshare(1) and user namespaces")
def test_full_and_read_only(tmp_path: Path) -> None:
    mounted = tmp_path / "storage"
    mounted.mkdir()
    script = (
        'mount -t tmpfs -o size=8M tmpfs "$1" && exec "$2" -m tests.support.bad_storage "$1" "$3"'
    )
    done = subprocess.run(
        [*SPACES, "sh", "-c", script, "sh", str(mounted), sys.executable, str(tmp_path)],
        cwd=REPOSITORY,
        env=os.environ | {"PYTHONPATH": str(REPOSITORY)},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        timeout=150,
    )
    seen = json.loads(done.stdout)
    for what, step in (
        ("full", "free space there"),
        ("read-only", "make it writable"),
        ("prune", "make it writable"),
    ):
        assert f"snapshot storage file://{mounted}/app/0" in seen[what]
        assert step in seen[what]
        assert seen[what].endswith("then ask again")
    assert seen["while full"] == [[1, []]]
    assert seen["after full"] == [None, [[2, []], [1, []]]]
    assert seen["while read-only"] == [[2, []], [1, []]]
    assert seen["after read-only"] == [None, [[3, []], [2, []], [1, []]]]
