"""A full disk stops commits, and nothing else: they go on when there is space."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.integration.conftest import MakeApp
from tests.support.apps import KV
from tests.support.counting import Counting
from tests.support.fold import committed, fold

REPOSITORY = Path(__file__).parents[2]
SPACES = ["unshare", "-Urm"]


def may_mount() -> bool:
    try:
        done = subprocess.run(
            [*SPACES, "mount", "-t", "tmpfs", "tmpfs", "/mnt"], capture_output=True, check=False
        )
    except FileNotFoundError:
        return False
    return done.returncode == 0


@pytest.mark.full
@pytest.mark.skipif(not may_mount(), reason="needs unshare(1) and user namespaces")
def test_commits_wait_for_space_and_go_on(make_app: MakeApp) -> None:
    app = make_app([KV])
    folder = app.root / "small"
    folder.mkdir()
    servers = str(app.kafka.properties["bootstrap.servers"])
    mounted = (
        'mount -t tmpfs -o size=48M tmpfs "$1" && '
        'exec "$2" -m tests.support.full_disk "$3" "$1" "$4"'
    )
    done = subprocess.run(
        [*SPACES, "sh", "-c", mounted, "sh", str(folder), sys.executable, servers,
         json.dumps(app.topology.to_json())],
        cwd=REPOSITORY, env=os.environ | {"PYTHONPATH": str(REPOSITORY)},
        stdout=subprocess.PIPE, text=True, check=True, timeout=150,
    )  # fmt: skip
    seen = json.loads(done.stdout)

    assert f"{folder}/{app.name}/0" in seen["guarded"]["message"]
    assert 0 < seen["guarded"]["details"]["free_bytes"] < seen["guarded"]["details"]["needed_bytes"]
    assert seen["still_open"]
    assert seen["after_guarded"] == 2
    assert seen["flush"], "the disk was full indeed"
    assert seen["left"] == ["0"], "a full disk is no corruption"

    entries = {k.decode(): v[:10].decode() for k, v in fold(servers, app.topic("kv")).items()}
    assert seen["entries"] == entries
    assert entries["same"] == f"{seen['n']}"
    assert len(entries) == seen["n"] + 1
    same = [m.value() for m in committed(servers, app.topic("kv")) if m.key() == b"same"]
    assert same == [b"%d" % (i + 1) for i in range(seen["n"])], "each commit once, in order"
    rebuilt = app.opened(host="host-2", listener=Counting())
    assert rebuilt.marker.batch_number == seen["n"]
