"""A disk that fills up while a task is restored, for real: nothing is lost, and it goes on."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.integration.test_disk_full import REPOSITORY, SPACES, may_mount


@pytest.mark.skipif(not may_mount(), reason="needs unshare(1) and user namespaces")
def test_a_restore_waits_for_space(tmp_path: Path) -> None:
    mounted = tmp_path / "small"
    mounted.mkdir()
    script = 'mount -t tmpfs -o size=96M tmpfs "$1" && exec "$2" -m tests.support.full_restore "$1"'
    done = subprocess.run(
        [*SPACES, "sh", "-c", script, "sh", str(mounted), sys.executable],
        cwd=REPOSITORY,
        env=os.environ | {"PYTHONPATH": str(REPOSITORY)},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        timeout=150,
    )
    told = json.loads(done.stdout)
    seen = told["seen"]
    refused = {name: one for name, one in seen.items() if one["code"]}
    assert all(one["filled"] for one in seen.values()), "each moment came"
    assert len(refused) >= 15, "only a moment near the end, with some space, may do"
    for name, one in refused.items():
        assert one["code"] == "unavailable", name
        assert str(mounted / "app") in one["message"], name
        assert "No space left" in one["message"], name
        assert "free space" in one["message"], name
        there = ["0"] if name.startswith("replaced") else []
        built = ["0"] if name.startswith("lost: whole") else [*there, "0.restoring"]
        assert one["left"] == built, f"{name}: what was there is as it was"
    assert "cannot restore app/0" in refused["replaced: whole , 0"]["message"]
    for name, one in seen.items():
        assert one["well"], f"{name}: once there is space it holds what it held"
        assert one["after"] == ["0"], f"{name}: nothing lies about"
    assert told["n"] == 31, "and goes on"
