"""A disk that fills up while a task is restored or goes back: nothing is lost, and it goes on."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.integration.test_disk_full import REPOSITORY, SPACES, may_mount


def on_a_small_disk(mounted: Path, module: str, *arguments: str) -> Any:
    """What a program says whose state is on a tmpfs of its own."""
    mounted.mkdir()
    script = 'mount -t tmpfs -o size=96M tmpfs "$0" && exec "$@"'
    inside = [sys.executable, "-m", module, str(mounted), *arguments]
    done = subprocess.run(
        [*SPACES, "sh", "-c", script, str(mounted), *inside],
        cwd=REPOSITORY,
        env=os.environ | {"PYTHONPATH": str(REPOSITORY)},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        timeout=150,
    )
    return json.loads(done.stdout)


@pytest.mark.skipif(not may_mount(), reason="needs unshare(1) and user namespaces")
def test_a_restore_waits_for_space(tmp_path: Path) -> None:
    mounted = tmp_path / "small"
    told = on_a_small_disk(mounted, "tests.support.full_restore")
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


@pytest.mark.skipif(not may_mount(), reason="needs unshare(1) and user namespaces")
def test_a_way_back_in_time_waits_for_space(tmp_path: Path) -> None:
    """Refused before it has begun; after that it is finished by whoever opens the task."""
    mounted = tmp_path / "small"
    storage = str(tmp_path / "snapshots")
    seen = on_a_small_disk(mounted, "tests.support.full_past", storage)["seen"]
    assert all(one["filled"] for one in seen.values()), "each moment came"
    refused = {name: one for name, one in seen.items() if one["code"]}
    assert len(refused) >= 6, "only a moment near the end, with some space, may do"
    for name, one in refused.items():
        assert one["code"] == "unavailable", name
        assert str(mounted / "app") in one["message"], name
        assert "free space" in one["message"], name
        assert one["untouched"] is name.startswith("before"), name
    for name in ("before , 0", "before , 1500000"):
        assert name in refused, "a snapshot is fetched, and room for it looked at, before all else"
    for name, one in seen.items():
        assert one["rewound"], f"{name}: once there is space it has gone back"
        assert one["well"], f"{name}: to what it held then"
        assert one["after"] == ["0"], f"{name}: nothing lies about"
