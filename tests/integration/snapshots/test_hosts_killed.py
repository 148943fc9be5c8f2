"""A host that is killed at every point of a snapshot lists nothing incomplete."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from state_lib.errors import (
    Unavailable,
)
from state_lib.snapshots.listing import list_snapshots, verify
from state_lib.snapshots.prune import Retention, prune
from state_lib.snapshots.storage import is_partial
from tests.integration.conftest import MakeApp
from tests.support.host_process import Hosts
from tests.support.hosts import publish
from tests.support.snapshots import ended


@pytest.fixture
def hosts(make_app: MakeApp) -> Iterator[Hosts]:
    running = Hosts(make_app())
    yield running
    running.stop()


PHASES = (
    "snapshot.upload=sleep:0.5@2;snapshot.upload=kill@2",  # the other files come meanwhile
    "snapshot.checkpoint=kill",
    "snapshot.upload=kill",
    "snapshot.before_manifest=kill",
    "snapshot.after_manifest=kill",
)


def test_a_host_killed_in_any_phase_lists_nothing_incomplete(hosts: Hosts) -> None:
    app, epoch = hosts.app, publish(hosts.app)
    hosts.start(epoch)
    storage = Path(hosts.url.removeprefix("file://"), app.name, "0")
    listed = 0
    for n, phase in enumerate(PHASES, 1):
        hosts.commit(n, {b"%d" % n: os.urandom(50_000), b"same": b"%d" % n})
        hosts.armed.write_text(phase)
        with hosts.client() as client, suppress(Unavailable):  # it may die before it has answered
            client.snapshot(app.name, 0)
        assert hosts.processes["host-1"].wait(60) == -9
        hosts.armed.write_text("")
        uploaded = sum(not is_partial(p.name) for p in (storage / "files").glob("*"))
        listed += phase == PHASES[-1]
        found = list_snapshots(hosts.url, app.name, 0)
        assert len(found) == listed
        assert all(verify(m, deep=True) == [] for m in found)
        hosts.start(epoch)
        assert [p.name for p in hosts.state().iterdir() if p.name.endswith(".snapshot")] == []
        with hosts.client() as client:
            client.snapshot(app.name, 0)
            job = ended(client, app.name)
        assert job["state"] == "done"
        listed += 1
        newest = list_snapshots(hosts.url, app.name, 0)[0]
        assert newest.id == job["snapshot"]
        assert newest.marker.batch_number == n
        assert verify(newest, deep=True) == []
        if n == 1:
            assert 0 < uploaded < len(newest.files), "it was killed in the middle"
    (storage / "files" / ("0" * 64)).write_bytes(b"left")
    long_ago = time.time() - 30 * 3600
    for path in storage.rglob("*"):
        os.utime(path, (long_ago, long_ago))
    assert prune(hosts.url, app.name, 0, Retention(9)).deleted_files >= 1
    needed = {f.sha256 for m in list_snapshots(hosts.url, app.name, 0) for f in m.files}
    assert {p.name for p in (storage / "files").iterdir()} == needed
